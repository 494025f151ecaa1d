// Copied by `setup` beside node_modules, so that the bare names resolve there.
export { Client } from '@modelcontextprotocol/sdk/client/index.js';
export { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
export { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
export { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
export { InMemoryEventStore } from '@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js';
export { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
export { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
export { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
export { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
export { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
export * as types from '@modelcontextprotocol/sdk/types.js';
export { z } from 'zod';
