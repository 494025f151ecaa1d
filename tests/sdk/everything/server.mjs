// The reference server `@modelcontextprotocol/server-everything`, over stdio or HTTP.
import { Server } from 'node:net';
import { announce, serverOptions } from '../common/server.mjs';
import { sdkModule } from '../common/sdk.mjs';

const options = serverOptions(['--sse']);
let mode = 'stdio';
if (options.http !== undefined) {
    mode = options.sse ? 'sse' : 'streamableHttp';
    // It listens on every address: keep it on this machine, and see which port it got.
    const { listen } = Server.prototype;
    Server.prototype.listen = function (_port, ...rest) {
        announce(this, options.sse ? '/sse' : '/mcp', options);
        return listen.call(this, options.http, '127.0.0.1', ...rest.filter(argument => typeof argument === 'function'));
    };
    console.log = console.error; // it tells of every request; one line on standard output is enough
}
process.argv.splice(2, Infinity, mode);
await import(sdkModule('node_modules/@modelcontextprotocol/server-everything/dist/index.js'));
