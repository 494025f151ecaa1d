// mcp-use for JavaScript with Milepost in front of a server.
//
//   npm install --no-package-lock --prefix examples/agents/mcp-use-js
//   node examples/agents/mcp-use-js/agent.mjs
import { MCPClient } from 'mcp-use/client';

const args = ['wrap', '--', 'python3', 'examples/agents/server.py'];
const client = new MCPClient({ mcpServers: { reports: { command: 'milepost', args } } });
const session = await client.createSession('reports');
console.log((await session.listTools()).map(tool => tool.name));
// A call has 60 s by default.
console.log(JSON.stringify(await session.callTool('report', { seconds: 3 }, { timeout: 300_000 })));
await client.closeAllSessions();
