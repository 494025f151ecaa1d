// Copied by `setup` beside node_modules, so that the bare names resolve there.
export { EventSource } from 'eventsource';
export { Client } from 'sdk-1.0/client/index.js';
export { SSEClientTransport } from 'sdk-1.0/client/sse.js';
export { StdioClientTransport } from 'sdk-1.0/client/stdio.js';
export * as types from 'sdk-1.0/types.js';
