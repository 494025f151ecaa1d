// Genkit with Milepost in front of a server.
//
//   npm install --no-package-lock --prefix examples/agents/genkit
//   node examples/agents/genkit/agent.mjs
import { createMcpClient } from '@genkit-ai/mcp';
import { genkit } from 'genkit';

const args = ['wrap', '--', 'python3', 'examples/agents/server.py'];
// A call has 60 s, and Genkit has no setting for it.
const client = createMcpClient({ name: 'reports', mcpServer: { command: 'milepost', args } });
const tools = await client.getActiveTools(genkit({}));
console.log(tools.map(tool => tool.__action.name));
console.log(JSON.stringify(await tools.find(tool => tool.__action.name.endsWith('/report'))({ seconds: 3 })));
await client.disable();
