// A client made with the TypeScript SDK 1.0, which knows stdio and HTTP+SSE and the protocol of 2024-11-05.
import { run } from '../common/client.mjs';
import { loadSdk } from '../common/sdk.mjs';

const { Client, EventSource, SSEClientTransport, StdioClientTransport, types } = await loadSdk('ts10');

// Browsers have one; Node 20 has none, and this SDK's documentation sends its users to this package.
globalThis.EventSource = EventSource;

await run('ts10', {
    Stdio: StdioClientTransport,
    Sse: SSEClientTransport,
    newClient: () => new Client({ name: 'milepost-ts10', version: '1' }, { capabilities: {} }),
    callTool: (client, params, request) => client.callTool(params, undefined, request),
    isTimeout: error => error?.code === types.ErrorCode.RequestTimeout,
    protocol: () => types.LATEST_PROTOCOL_VERSION,
});
