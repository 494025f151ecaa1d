// A server made with the TypeScript SDK 2.x, over stdio. Tools: see ../README.md.
import { setTimeout as sleep } from 'node:timers/promises';
import { loadSdk } from '../common/sdk.mjs';

const { McpServer, serveStdio, z } = await loadSdk('ts2');

const text = value => ({ content: [{ type: 'text', text: value }] });

/** Reports progress with the caller's token, as the SDK's documentation shows; nothing without a token. */
function report(ctx, progress, total, message) {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    if (progressToken === undefined) return undefined;
    const params = { progressToken, progress };
    if (total !== undefined) params.total = total;
    if (message !== undefined) params.message = message;
    return ctx.mcpReq.notify({ method: 'notifications/progress', params });
}

serveStdio(() => {
    const server = new McpServer({ name: 'milepost-ts2-server', version: '1' });

    server.registerTool('steps', { inputSchema: z.object({ count: z.number().default(3), ms: z.number().default(50), total: z.number().optional() }) },
        async ({ count, ms, total }, ctx) => {
            for (let step = 1; step <= count; step++) {
                await sleep(ms);
                await report(ctx, step, total, `step ${step}`);
            }
            await sleep(ms);
            return text(`${count} steps done`);
        });

    server.registerTool('quiet', { inputSchema: z.object({ ms: z.number().default(1000) }) }, async ({ ms }) => {
        await sleep(ms);
        return text(`quiet for ${ms} ms`);
    });

    // Not awaited: the progress and the result are written in the same turn of the event loop.
    server.registerTool('burst', { inputSchema: z.object({}) }, async (_args, ctx) => {
        void report(ctx, 100, 100, 'done');
        return text('burst done');
    });

    server.registerTool('big', { inputSchema: z.object({ bytes: z.number().default(1000) }) }, async ({ bytes }) => text('x'.repeat(bytes)));

    server.registerTool('ask', { inputSchema: z.object({}) }, async (_args, ctx) => {
        await ctx.mcpReq.send({ method: 'ping' });
        return text('the client answered the ping');
    });

    return server;
});
