// A server as the documentation of the TypeScript SDK 2.x has it, on standard streams.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';

const require = createRequire(join(process.env.SDK_FOLDER, 'server.cjs'));
const load = name => import(pathToFileURL(require.resolve(name)).href);
const { McpServer } = await load('@modelcontextprotocol/server');
const { serveStdio } = await load('@modelcontextprotocol/server/stdio');
const { z } = await load('zod');

serveStdio(() => {
    const server = new McpServer({ name: 'matrix-ts2', version: '1.0.0' });
    server.registerTool('work', { inputSchema: z.object({}) }, async (_args, ctx) => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (let progress = 1; progress <= 3; progress++) {
            await sleep(150);
            if (progressToken !== undefined) {
                await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 3, message: `step ${progress}` } });
            }
        }
        await sleep(150);
        return { content: [{ type: 'text', text: 'done' }] };
    });
    return server;
});
