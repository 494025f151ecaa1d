// A client made with the TypeScript SDK 1.x.
import { run } from '../common/client.mjs';
import { loadSdk } from '../common/sdk.mjs';

const { Client, SSEClientTransport, StdioClientTransport, StreamableHTTPClientTransport, types } = await loadSdk('ts1');

// The SDK tells only its transport which protocol version was agreed, and has no option for the one it asks for.
let agreed;
function prepare(transport, { protocol }) {
    const { setProtocolVersion, send } = transport;
    transport.setProtocolVersion = version => {
        agreed = version;
        setProtocolVersion?.call(transport, version);
    };
    if (!protocol) return;
    transport.send = (message, ...rest) => {
        if (message.method === 'initialize') message.params.protocolVersion = protocol;
        return send.call(transport, message, ...rest);
    };
}

await run('ts1', {
    Stdio: StdioClientTransport,
    Http: StreamableHTTPClientTransport,
    Sse: SSEClientTransport,
    prepare,
    newClient: () => new Client({ name: 'milepost-ts1', version: '1' }),
    callTool: (client, params, request) => client.callTool(params, undefined, request),
    isTimeout: error => error?.code === types.ErrorCode.RequestTimeout && /timed out|timeout exceeded/i.test(error.message),
    protocol: () => agreed,
});
