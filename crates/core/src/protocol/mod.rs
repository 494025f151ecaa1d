//! Reads and writes messages: JSON, JSON-RPC, MCP's names, framings, trace contexts.
pub mod control_characters;
pub mod exact_value;
pub mod json;
pub mod jsonrpc;
pub mod lines;
pub mod mcp;
pub mod order;
pub mod secret;
pub mod sse;
pub mod terminal;
pub mod trace_context;
pub mod unicode;
