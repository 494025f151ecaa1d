// AI SDK with Milepost in front of a server.
//
//   npm install --no-package-lock --prefix examples/agents/ai-sdk
//   node examples/agents/ai-sdk/agent.mjs
import { createMCPClient } from '@ai-sdk/mcp';
import { StdioMCPTransport } from '@ai-sdk/mcp/mcp-stdio';

const args = ['wrap', '--', 'python3', 'examples/agents/server.py'];
const client = await createMCPClient({ transport: new StdioMCPTransport({ command: 'milepost', args }) });
const tools = await client.tools();
console.log(Object.keys(tools));
console.log(JSON.stringify(await tools.report.execute({ seconds: 3 }, { toolCallId: '1', messages: [] })));
await client.close();
