// A client made with the TypeScript SDK 1.x.
import { run } from '../common/client.mjs';
import { loadSdk } from '../common/sdk.mjs';

const { Client, StdioClientTransport, types } = await loadSdk('ts1');

// The SDK tells only its transport which protocol version was agreed.
class Transport extends StdioClientTransport {
    setProtocolVersion(version) {
        this.protocol = version;
    }
}

await run('ts1', {
    Transport,
    newClient: () => new Client({ name: 'milepost-ts1', version: '1' }),
    callTool: (client, params, request) => client.callTool(params, undefined, request),
    isTimeout: error => error?.code === types.ErrorCode.RequestTimeout && /timed out|timeout exceeded/i.test(error.message),
    protocol: (_client, transport) => transport.protocol,
});
