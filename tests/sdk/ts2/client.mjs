// A client made with the TypeScript SDK 2.x.
import { run } from '../common/client.mjs';
import { loadSdk } from '../common/sdk.mjs';

const { Client, SdkError, SdkErrorCode, StdioClientTransport } = await loadSdk('ts2');

await run('ts2', {
    Transport: StdioClientTransport,
    newClient: ({ negotiate }) =>
        new Client({ name: 'milepost-ts2', version: '1' }, negotiate ? { versionNegotiation: { mode: negotiate } } : {}),
    callTool: (client, params, request) => client.callTool(params, request),
    isTimeout: error => error instanceof SdkError && error.code === SdkErrorCode.RequestTimeout,
    protocol: client => client.getNegotiatedProtocolVersion(),
});
