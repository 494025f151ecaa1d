// The last `@modelcontextprotocol/server-everything` that was made with the TypeScript SDK 1.0, over stdio.
import { serverOptions } from '../common/server.mjs';
import { sdkModule } from '../common/sdk.mjs';

if (serverOptions([]).http !== undefined) throw new Error('this server speaks stdio only');
await import(sdkModule('node_modules/server-everything-1.0/dist/index.js'));
