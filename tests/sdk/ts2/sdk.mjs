// Copied by `setup` beside node_modules, so that the bare names resolve there.
export { Client, SdkError, SdkErrorCode, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
export { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
export {
    localhostHostValidation, localhostOriginValidation, NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest,
} from '@modelcontextprotocol/node';
export { createMcpHandler, isInitializeRequest, isLegacyRequest, McpServer } from '@modelcontextprotocol/server';
export { serveStdio } from '@modelcontextprotocol/server/stdio';
export { z } from 'zod';
