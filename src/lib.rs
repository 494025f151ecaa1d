//! Milepost: a transparent MCP proxy that adds progress to legacy servers.
pub mod census;
pub mod clients;
pub mod demo;
pub mod doctor;
pub mod guarded;
pub mod host;
pub mod http;
pub mod json;
pub mod jsonrpc;
pub mod lines;
pub mod mcp;
pub mod probe;
pub mod progress;
pub mod relay;
pub mod remote;
pub mod routes;
pub mod secret;
pub mod serve;
pub mod settings;
pub mod sse;
pub mod telemetry;
pub mod terminal;
pub mod transport;
pub mod wrap;

pub mod check;
pub mod cli;
