// Mastra with Milepost in front of a server.
//
//   npm install --no-package-lock --prefix examples/agents/mastra
//   node examples/agents/mastra/agent.mjs
import { MCPClient } from '@mastra/mcp';

const args = ['wrap', '--', 'python3', 'examples/agents/server.py'];
const reports = { command: 'milepost', args, enableProgressTracking: true };
// A call has 60 s by default.
const client = new MCPClient({ servers: { reports }, timeout: 300_000 });
await client.progress.onUpdate('reports', ({ progress, total, message }) => console.log(`${progress} of ${total}: ${message}`));
const tools = await client.listTools();
console.log(Object.keys(tools));
console.log(JSON.stringify(await tools.reports_report.execute({ seconds: 3 }, {})));
await client.disconnect();
