// A client made with the TypeScript SDK 2.x.
import { run } from '../common/client.mjs';
import { loadSdk } from '../common/sdk.mjs';

const { Client, SdkError, SdkErrorCode, SSEClientTransport, StdioClientTransport, StreamableHTTPClientTransport } = await loadSdk('ts2');

/** The first version without the `initialize` handshake: from there on one asks for a version by pinning it. */
const MODERN = '2026-07-28';

function clientOptions({ negotiate, protocol }) {
    const modern = protocol >= MODERN;
    const mode = negotiate ?? (modern ? { pin: protocol } : undefined);
    return { versionNegotiation: mode && { mode }, supportedProtocolVersions: protocol && !modern ? [protocol] : undefined };
}

await run('ts2', {
    Stdio: StdioClientTransport,
    Http: StreamableHTTPClientTransport,
    Sse: SSEClientTransport,
    newClient: options => new Client({ name: 'milepost-ts2', version: '1' }, clientOptions(options)),
    callTool: (client, params, request) => client.callTool(params, request),
    isTimeout: error => error instanceof SdkError && error.code === SdkErrorCode.RequestTimeout,
    protocol: client => client.getNegotiatedProtocolVersion(),
});
