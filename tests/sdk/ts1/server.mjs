// A server made with the TypeScript SDK 1.x, over stdio. Tools: see ../README.md.
import { setTimeout as sleep } from 'node:timers/promises';
import { loadSdk } from '../common/sdk.mjs';

const { McpServer, StdioServerTransport, types, z } = await loadSdk('ts1');

const server = new McpServer({ name: 'milepost-ts1-server', version: '1' });
const text = value => ({ content: [{ type: 'text', text: value }] });

/** Reports progress with the caller's token, as the SDK's documentation shows; nothing without a token. */
function report(extra, progress, total, message) {
    const progressToken = extra._meta?.progressToken;
    if (progressToken === undefined) return undefined;
    const params = { progressToken, progress };
    if (total !== undefined) params.total = total;
    if (message !== undefined) params.message = message;
    return extra.sendNotification({ method: 'notifications/progress', params });
}

server.registerTool('steps', { inputSchema: { count: z.number().default(3), ms: z.number().default(50), total: z.number().optional() } },
    async ({ count, ms, total }, extra) => {
        for (let step = 1; step <= count; step++) {
            await sleep(ms);
            await report(extra, step, total, `step ${step}`);
        }
        await sleep(ms);
        return text(`${count} steps done`);
    });

server.registerTool('quiet', { inputSchema: { ms: z.number().default(1000) } }, async ({ ms }) => {
    await sleep(ms);
    return text(`quiet for ${ms} ms`);
});

// Not awaited: the progress and the result are written in the same turn of the event loop.
server.registerTool('burst', { inputSchema: {} }, async (_args, extra) => {
    void report(extra, 100, 100, 'done');
    return text('burst done');
});

server.registerTool('big', { inputSchema: { bytes: z.number().default(1000) } }, async ({ bytes }) => text('x'.repeat(bytes)));

server.registerTool('ask', { inputSchema: {} }, async (_args, extra) => {
    await extra.sendRequest({ method: 'ping' }, types.EmptyResultSchema);
    return text('the client answered the ping');
});

await server.connect(new StdioServerTransport());
