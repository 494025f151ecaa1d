// The reference server `@modelcontextprotocol/server-everything` in one of its HTTP modes.
import { Server } from 'node:net';
import { announce, serverOptions } from '../common/server.mjs';
import { sdkModule } from '../common/sdk.mjs';

const options = serverOptions(['--sse']);
if (options.http === undefined) options.http = 0;
const mode = options.sse ? 'sse' : 'streamableHttp';

// It listens on every address, at $PORT: keep it on this machine, and see which port it got.
const { listen } = Server.prototype;
Server.prototype.listen = function (_port, ...rest) {
    announce(this, options.sse ? '/sse' : '/mcp', options);
    return listen.call(this, options.http, '127.0.0.1', ...rest.filter(argument => typeof argument === 'function'));
};
process.argv.splice(2, Infinity, mode);
console.log = console.error; // it tells of every request; one line on standard output is enough
await import(sdkModule('node_modules/@modelcontextprotocol/server-everything/dist/index.js'));
