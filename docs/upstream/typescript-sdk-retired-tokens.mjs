// node typescript-sdk-retired-tokens.mjs [FOLDER]: FOLDER has node_modules with @modelcontextprotocol/sdk or /client.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

if (process.argv[2] === 'server') {
    // A compliant server: one notification, then the answer, in one write.
    const line = message => JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n';
    const answer = ({ id, method, params }) => {
        if (method === 'initialize') {
            return line({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } } });
        }
        if (method !== 'tools/call') return id === undefined ? '' : line({ id, error: { code: -32601, message: 'unknown' } });
        const progress = { progressToken: params._meta.progressToken, progress: 1, total: 1, message: 'done' };
        return line({ method: 'notifications/progress', params: progress }) + line({ id, result: { content: [] } });
    };
    let rest = '';
    process.stdin.setEncoding('utf8').on('data', text => {
        const lines = (rest + text).split('\n');
        rest = lines.pop();
        for (const one of lines) process.stdout.write(answer(JSON.parse(one)));
    });
} else {
    const folder = resolve(process.argv[2] ?? '.');
    const require = createRequire(join(folder, 'x.cjs'));
    const load = name => import(pathToFileURL(require.resolve(name)).href);
    const isNew = existsSync(join(folder, 'node_modules/@modelcontextprotocol/client'));
    const { Client } = await load(isNew ? '@modelcontextprotocol/client' : '@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await load(isNew ? '@modelcontextprotocol/client/stdio' : '@modelcontextprotocol/sdk/client/stdio.js');
    const client = new Client({ name: 'reproduction', version: '1' });
    let came = 0, unknown = 0;
    client.onerror = error => { if (String(error.message).includes('unknown token')) unknown++; };
    await client.connect(new StdioClientTransport({ command: process.execPath, args: [process.argv[1], 'server'] }));
    const request = { onprogress: () => came++ };
    for (let call = 0; call < 20; call++) {
        const params = { name: 't', arguments: {} };
        await (isNew ? client.callTool(params, request) : client.callTool(params, undefined, request));
    }
    await new Promise(done => setTimeout(done, 200));
    console.log(`20 calls with one notification each: ${came} shown, ${unknown} reported as an unknown token`);
    await client.close();
}
