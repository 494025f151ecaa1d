// Copied by `setup` beside node_modules, so that the bare names resolve there.
export { Client } from '@modelcontextprotocol/sdk/client/index.js';
export { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
export { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
export { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
export * as types from '@modelcontextprotocol/sdk/types.js';
export { z } from 'zod';
