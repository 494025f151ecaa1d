// A driver for `milepost check-progress --client`, of the official TypeScript SDK 1.x or 2.x:
//
//   npm install @modelcontextprotocol/sdk        (or @modelcontextprotocol/client)
//   milepost check-progress --client --driver 'node examples/clients/driver.mjs {url} {tool}'
//
// The packages are looked for from the working folder, or from $SDK_FOLDER.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = resolve(process.env.SDK_FOLDER ?? '.');
const require = createRequire(join(folder, 'driver.cjs'));
const load = name => import(pathToFileURL(require.resolve(name)).href);

/** The client and the transport of the SDK that is installed. */
async function sdk() {
    if (existsSync(join(folder, 'node_modules/@modelcontextprotocol/client'))) {
        const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client');
        return { Client, StreamableHTTPClientTransport, call: (client, params, options) => client.callTool(params, options) };
    }
    const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
    return { Client, StreamableHTTPClientTransport, call: (client, params, options) => client.callTool(params, undefined, options) };
}

const [url, tool] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport, call } = await sdk();
const report = { client: 'driver.mjs', calls: [], errors: [] };
const client = new Client({ name: report.client, version: '1.0.0' });
client.onerror = error => report.errors.push(String(error?.message ?? error).slice(0, 200));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
for (const name of [tool, 'correct']) {
    const entry = { tool: name, outcome: 'result', progress: [], error: null };
    report.calls.push(entry);
    const onprogress = p => entry.progress.push([p.progress, p.total ?? null, p.message ?? null]);
    try {
        await call(client, { name, arguments: {} }, { onprogress });
    } catch (error) {
        entry.outcome = 'error';
        entry.error = String(error?.message ?? error);
    }
}
await client.close();
console.log(JSON.stringify(report));
process.exit(0);
