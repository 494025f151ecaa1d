// Long calls with the TypeScript SDK: long.mjs DEFAULT|RESET URL|CMD TIMES EDGE, with a command line for a shell,
// and TIMES in seconds, separated with commas. Each call takes EDGE seconds more. Prints `connected`, and then for each time, when both calls are over, how the
// call with progress and the silent call ended.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = process.env.SDK_FOLDER;
const require = createRequire(join(folder, 'driver.cjs'));
const load = name => import(pathToFileURL(require.resolve(name)).href);
const isNew = existsSync(join(folder, 'node_modules/@modelcontextprotocol/client'));
const base = isNew ? '@modelcontextprotocol/client' : '@modelcontextprotocol/sdk/client';
const { Client } = await load(isNew ? base : `${base}/index.js`);
const { StreamableHTTPClientTransport } = await load(isNew ? base : `${base}/streamableHttp.js`);
const { StdioClientTransport } = await load(isNew ? `${base}/stdio` : `${base}/stdio.js`);

const [options, address, times, edge] = process.argv.slice(2);
const client = new Client({ name: 'matrix', version: '1.0.0' });
client.onerror = () => {};
await client.connect(
    address.startsWith('http')
        ? new StreamableHTTPClientTransport(new URL(address))
        : new StdioClientTransport({ command: 'sh', args: ['-c', `exec ${address}`], stderr: 'ignore' })
);
console.log('connected');
const request = { onprogress: () => {}, resetTimeoutOnProgress: options === 'RESET' };
const once = async (key, steps) => {
    const params = { name: 'play', arguments: { key, steps } };
    try {
        await (isNew ? client.callTool(params, request) : client.callTool(params, undefined, request));
        return true;
    } catch {
        return false;
    }
};
const calls = times.split(',').map(Number).map(async seconds => {
    const beats = Array.from({ length: Math.floor(seconds / 5) }, (_, at) => ({ wait: 5000, progress: at + 1, message: 'working' }));
    beats.push({ wait: edge * 1000, do: 'answer' });
    const [talking, silent] = await Promise.all([once('talking', beats), once('silent', [{ wait: (seconds + Number(edge)) * 1000, do: 'answer' }])]);
    console.log(JSON.stringify({ [seconds]: { talking, silent } }));
});
await Promise.all(calls);
await client.close();
process.exit(0);
