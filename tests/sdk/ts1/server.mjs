// A server made with the TypeScript SDK 1.x, over stdio or HTTP. Tools: see ../README.md.
import { randomUUID } from 'node:crypto';
import { addTools, announce, serverOptions } from '../common/server.mjs';
import { loadSdk } from '../common/sdk.mjs';

const { createMcpExpressApp, InMemoryEventStore, McpServer, SSEServerTransport, StdioServerTransport, StreamableHTTPServerTransport, types, z } =
    await loadSdk('ts1');
const options = serverOptions(['--json', '--stateless', '--resumable', '--sse']);

function newServer() {
    const server = new McpServer({ name: 'milepost-ts1-server', version: '1' });
    addTools(server, z, {
        shape: fields => fields,
        token: extra => extra._meta?.progressToken,
        notify: (extra, notification) => extra.sendNotification(notification),
        ping: extra => extra.sendRequest({ method: 'ping' }, types.EmptyResultSchema),
    });
    return server;
}

const refuse = (res, status, code, message) => res.status(status).json({ jsonrpc: '2.0', error: { code, message }, id: null });

/** As the SDK's examples do it: a server and a transport for each session, or for each request when stateless. */
function streamable(app) {
    const sessions = new Map();
    const open = async () => {
        const transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: options.stateless ? undefined : randomUUID,
            enableJsonResponse: options.json,
            eventStore: options.resumable ? new InMemoryEventStore() : undefined,
            onsessioninitialized: id => void sessions.set(id, transport),
        });
        transport.onclose = () => sessions.delete(transport.sessionId);
        await newServer().connect(transport);
        return transport;
    };
    app.all('/mcp', async (req, res) => {
        const id = req.headers['mcp-session-id'];
        if (options.stateless) {
            if (req.method !== 'POST') return refuse(res, 405, -32000, 'Method not allowed.');
            const transport = await open();
            res.on('close', () => transport.close());
            return transport.handleRequest(req, res, req.body);
        }
        if (id && !sessions.has(id)) return refuse(res, 404, -32001, 'Session not found');
        if (!id && !types.isInitializeRequest(req.body)) return refuse(res, 400, -32000, 'Bad Request: No valid session ID provided');
        return (sessions.get(id) ?? (await open())).handleRequest(req, res, req.body);
    });
}

function legacySse(app) {
    const sessions = new Map();
    app.get('/sse', async (_req, res) => {
        const transport = new SSEServerTransport('/messages', res);
        sessions.set(transport.sessionId, transport);
        transport.onclose = () => sessions.delete(transport.sessionId);
        await newServer().connect(transport);
    });
    app.post('/messages', async (req, res) => {
        const transport = sessions.get(req.query.sessionId);
        if (!transport) return res.status(404).send('Session not found');
        return transport.handlePostMessage(req, res, req.body);
    });
}

if (options.http === undefined) await newServer().connect(new StdioServerTransport());
else {
    const app = createMcpExpressApp();
    (options.sse ? legacySse : streamable)(app);
    announce(app.listen(options.http, '127.0.0.1'), options.sse ? '/sse' : '/mcp', options);
}
