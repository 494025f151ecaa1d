// A server made with the TypeScript SDK 2.x, over stdio or HTTP. Tools: see ../README.md.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { addTools, announce, serverOptions } from '../common/server.mjs';
import { loadSdk } from '../common/sdk.mjs';

const {
    createMcpHandler, isInitializeRequest, isLegacyRequest, localhostHostValidation, localhostOriginValidation, McpServer,
    NodeStreamableHTTPServerTransport, serveStdio, toNodeHandler, toWebRequest, z,
} = await loadSdk('ts2');
const options = serverOptions(['--json', '--stateless']);

function newServer() {
    const server = new McpServer({ name: 'milepost-ts2-server', version: '1' });
    addTools(server, z, {
        shape: fields => z.object(fields),
        token: ctx => ctx.mcpReq._meta?.progressToken,
        notify: (ctx, notification) => ctx.mcpReq.notify(notification),
        ping: ctx => ctx.mcpReq.send({ method: 'ping' }),
    });
    return server;
}

const refuse = (res, status, code, message) =>
    res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ jsonrpc: '2.0', error: { code, message }, id: null }));

const sessions = new Map();

/** Serves protocols before 2026-07-28 as the SDK's README does: with sessions, or each request for itself. */
async function legacy(req, res, body) {
    const id = req.headers['mcp-session-id'];
    let transport = sessions.get(id);
    if (!transport) {
        if (id) return refuse(res, 404, -32001, 'Session not found');
        if (options.stateless && req.method !== 'POST') return refuse(res, 405, -32000, 'Method not allowed.');
        if (!options.stateless && !isInitializeRequest(body)) return refuse(res, 400, -32000, 'Bad Request: No valid session ID provided');
        transport = new NodeStreamableHTTPServerTransport({
            sessionIdGenerator: options.stateless ? undefined : randomUUID,
            enableJsonResponse: options.json,
            onsessioninitialized: session => void sessions.set(session, transport),
        });
        transport.onclose = () => sessions.delete(transport.sessionId);
        if (options.stateless) res.on('close', () => transport.close());
        await newServer().connect(transport);
    }
    return transport.handleRequest(req, res, body);
}

async function bodyOf(req) {
    let text = '';
    for await (const chunk of req.setEncoding('utf8')) text += chunk;
    try {
        return JSON.parse(text);
    } catch {
        return undefined;
    }
}

if (options.http === undefined) serveStdio(newServer);
else {
    const modern = toNodeHandler(createMcpHandler(newServer, { legacy: 'reject', responseMode: options.json ? 'json' : 'auto' }));
    const guards = [localhostHostValidation(), localhostOriginValidation()];
    const server = createServer(async (req, res) => {
        if (!guards.every(guard => guard(req, res))) return;
        if (new URL(req.url, 'http://127.0.0.1').pathname !== '/mcp') return refuse(res, 404, -32000, 'Not found');
        const body = req.method === 'POST' ? await bodyOf(req) : undefined;
        await ((await isLegacyRequest(await toWebRequest(req, body))) ? legacy : modern)(req, res, body);
    });
    announce(server.listen(options.http, '127.0.0.1'), '/mcp', options);
}
