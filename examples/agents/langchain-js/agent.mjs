// LangChain.js with Milepost in front of a server.
//
//   npm install --no-package-lock --prefix examples/agents/langchain-js
//   node examples/agents/langchain-js/agent.mjs
import { MultiServerMCPClient } from '@langchain/mcp-adapters';

const args = ['wrap', '--', 'python3', 'examples/agents/server.py'];
const client = new MultiServerMCPClient({
    mcpServers: { reports: { transport: 'stdio', command: 'milepost', args } },
    // A call has 60 s by default, with or without progress.
    defaultToolTimeout: 300_000,
    onProgress: ({ progress, total, message }) => console.log(`${progress} of ${total}: ${message}`),
});
const tools = await client.getTools();
console.log(tools.map(tool => tool.name));
console.log(await tools.find(tool => tool.name === 'report').invoke({ seconds: 3 }));
await client.close();
