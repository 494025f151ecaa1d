//! Milepost: a transparent MCP proxy that adds progress to legacy servers.
//!
//! Each folder is a layer. A layer uses the layers above it in this list, never those below.
pub mod commands;
pub mod config;
pub mod gateway;
pub mod observe;
pub mod progress;
pub mod protocol;
pub mod relay;
pub mod transport;
