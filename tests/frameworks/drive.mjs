// Plays one trial in a framework of JavaScript, as drive.py does for those of Python. The packages are those of the
// working folder.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const require = createRequire(join(process.cwd(), 'drive.cjs'));
const load = async name => {
    try {
        return await import(pathToFileURL(require.resolve(name)).href);
    } catch (error) {
        // A package with nothing for `require`: its own entry for `import`.
        const [, folder, rest] = name.match(/^((?:@[^/]+\/)?[^/]+)(.*)$/);
        const root = join(process.cwd(), 'node_modules', folder);
        const { exports } = require(join(root, 'package.json'));
        const entry = exports?.[`.${rest}`];
        if (!entry) throw error;
        return import(pathToFileURL(join(root, entry.import?.default ?? entry.import ?? entry.default)).href);
    }
};

/** The clients: each answers with `call(name, arguments, signal)` and `close`. `patience`: as in clients.py. */
const CLIENTS = {
    async 'ai-sdk'(server) {
        const { createMCPClient } = await load('@ai-sdk/mcp');
        const { StdioMCPTransport } = await load('@ai-sdk/mcp/mcp-stdio');
        const [command, ...args] = server.command ?? [];
        const transport = server.url ? { type: 'http', url: server.url } : new StdioMCPTransport({ command, args });
        const client = await createMCPClient({ transport });
        const tools = await client.tools();
        const call = (name, input, abortSignal) => tools[name].execute(input, { toolCallId: 'trial', messages: [], abortSignal });
        return { call, close: () => client.close() };
    },
    async mastra(server, patience) {
        const { MCPClient } = await load('@mastra/mcp');
        const [command, ...args] = server.command ?? [];
        const entry = { ...(server.url ? { url: new URL(server.url) } : { command, args }), enableProgressTracking: !!patience };
        const client = new MCPClient({ servers: { trial: entry }, ...(patience && { timeout: patience.seconds * 1000 }) });
        if (patience) await client.progress.onUpdate('trial', patience.show);
        const tools = await client.listTools();
        const call = (name, input, abortSignal) => tools[`trial_${name}`].execute(input, { abortSignal });
        return { call, close: () => client.disconnect() };
    },
    async genkit(server) {
        const { genkit } = await load('genkit');
        const { createMcpClient } = await load('@genkit-ai/mcp');
        const [command, ...args] = server.command ?? [];
        const client = createMcpClient({ name: 'trial', mcpServer: server.url ? { url: server.url } : { command, args } });
        const tools = await client.getActiveTools(genkit({}));
        const named = Object.fromEntries(tools.map(tool => [tool.__action.name.split('/').pop(), tool]));
        return { call: (name, input) => named[name](input), close: () => client.disable() };
    },
    async 'langchain-js'(server, patience) {
        const { MultiServerMCPClient } = await load('@langchain/mcp-adapters');
        const [command, ...args] = server.command ?? [];
        const entry = server.url ? { transport: 'http', url: server.url } : { transport: 'stdio', command, args };
        const limit = patience && { defaultToolTimeout: patience.seconds * 1000, onProgress: patience.show };
        const client = new MultiServerMCPClient({ mcpServers: { reports: entry }, ...limit });
        const tools = Object.fromEntries((await client.getTools()).map(tool => [tool.name, tool]));
        return { call: (name, input, signal) => tools[name].invoke(input, { signal }), close: () => client.close() };
    },
    async 'mcp-use-js'(server, patience) {
        // The package's main entry needs LangChain.
        const entry = await load('mcp-use/client');
        const { MCPClient } = entry.default ?? entry;
        const [command, ...args] = server.command ?? [];
        const client = new MCPClient({ mcpServers: { reports: server.url ? { url: server.url } : { command, args } } });
        const session = await client.createSession('reports');
        await session.listTools();
        const limit = patience && { timeout: patience.seconds * 1000, onprogress: patience.show };
        return { call: (name, input, signal) => session.callTool(name, input, { signal, ...limit }), close: () => client.closeAllSessions() };
    },
    async 'openai-agents-js'(server, patience) {
        const { MCPServerStdio, MCPServerStreamableHttp } = await load('@openai/agents');
        const [command, ...args] = server.command ?? [];
        const limit = patience && { timeout: patience.seconds * 1000 };
        const made = server.url
            ? new MCPServerStreamableHttp({ name: 'trial', url: server.url, ...limit })
            : new MCPServerStdio({ name: 'trial', command, args, ...limit });
        await made.connect();
        await made.listTools();
        return { call: (name, input, signal) => made.callTool(name, input, undefined, { signal }), close: () => made.close() };
    },
};

const SHORT = [['greet', { name: 'you' }], ['picture', {}], ['measure', {}], ['fail', {}]];
const LENGTH_MAX = 4000;
const CHANGING = /lc_[0-9a-f-]+|[0-9a-f]{8}-[0-9a-f-]{27}/g;
const sleep = seconds => new Promise(resolve => setTimeout(resolve, seconds * 1000));
const now = () => performance.now() / 1000;

async function one(call, name, input, signal) {
    const began = now();
    let given;
    try {
        given = JSON.stringify(await call(name, input, signal)) ?? 'undefined';
    } catch (error) {
        given = String(error);
    }
    return { given: given.replace(CHANGING, '…').slice(0, LENGTH_MAX), seconds: now() - began };
}

const PLAYS = {
    async short(call) {
        const calls = [];
        for (const [name, input] of SHORT) calls.push(await one(call, name, input));
        return calls;
    },
    async slow(call, task) {
        const calls = [];
        const began = now();
        while (calls.length < task.calls_max && now() - began < task.trial_max) {
            calls.push(await one(call, 'report', { seconds: task.seconds }));
            if (calls.at(-1).given.includes('15 pages')) break;
            if (calls.at(-1).seconds < 0.5) await sleep(1);
        }
        return calls;
    },
    async cancel(call, task) {
        const controller = new AbortController();
        const waiting = one(call, 'report', { seconds: task.seconds }, controller.signal);
        await sleep(2);
        controller.abort();
        await Promise.race([waiting, sleep(1)]);
        await sleep(1);
        return [await one(call, 'greet', { name: 'you' })];
    },
};
PLAYS.patient = PLAYS.slow;

const task = JSON.parse(process.argv[2]);
let calls = [];
let ended = null;
let shown = 0;
try {
    const patience = task.kind === 'patient' ? { seconds: task.seconds + 60, show: () => (shown += 1) } : undefined;
    const { call, close } = await CLIENTS[task.framework](task, patience);
    calls = await PLAYS[task.kind](call, task);
    await close();
} catch (error) {
    ended = String(error);
}
console.log(`\n${JSON.stringify({ calls, shown, ended })}`);
process.exit(0);
