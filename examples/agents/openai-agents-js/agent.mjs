// OpenAI Agents for JavaScript with Milepost in front of a server.
//
//   npm install --no-package-lock --prefix examples/agents/openai-agents-js
//   node examples/agents/openai-agents-js/agent.mjs
import { MCPServerStdio } from '@openai/agents';

const args = ['wrap', '--', 'python3', 'examples/agents/server.py'];
// A call has 60 s by default.
const server = new MCPServerStdio({ command: 'milepost', args, timeout: 300_000 });
await server.connect();
console.log((await server.listTools()).map(tool => tool.name));
console.log(JSON.stringify(await server.callTool('report', { seconds: 3 })));
await server.close();
