// Copied by `setup` beside node_modules, so that the bare names resolve there.
export { Client, SdkError, SdkErrorCode } from '@modelcontextprotocol/client';
export { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
export { McpServer } from '@modelcontextprotocol/server';
export { serveStdio } from '@modelcontextprotocol/server/stdio';
export { z } from 'zod';
