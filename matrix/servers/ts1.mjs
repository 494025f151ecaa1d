// A server as the documentation of the TypeScript SDK 1.x has it, on standard streams.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';

const require = createRequire(join(process.env.SDK_FOLDER, 'server.cjs'));
const load = name => import(pathToFileURL(require.resolve(name)).href);
const { McpServer } = await load('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = await load('@modelcontextprotocol/sdk/server/stdio.js');

const server = new McpServer({ name: 'matrix-ts1', version: '1.0.0' });
server.tool('work', async extra => {
    // Older versions do not hand the token on; they say so by silence.
    const progressToken = extra._meta?.progressToken;
    for (let progress = 1; progress <= 3; progress++) {
        await sleep(150);
        if (progressToken !== undefined) {
            await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: 3, message: `step ${progress}` } });
        }
    }
    await sleep(150);
    return { content: [{ type: 'text', text: 'done' }] };
});
await server.connect(new StdioServerTransport());
