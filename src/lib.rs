//! Milepost: a transparent MCP proxy that adds progress to legacy servers.
//!
//! Each folder is a layer, and uses only the layers below it:
//!
//! ```text
//! commands    the command line
//! lab         tools beside the proxy: doctor, check-progress, recordings, replay, mock, demo
//! gateway     `serve`: routes, and clients over HTTP
//! relay       one connection: two legs and a filter between them
//! transport   standard streams, child processes, HTTP, MCP over HTTP
//! observe     events for observers: logs, metrics, traces, recordings, live calls
//! config      settings and the route file
//! platform    what differs between systems
//! ```
//!
//! Below them is the engine, a package of its own without I/O: [`milepost_core`].
pub mod commands;
pub mod config;
pub mod gateway;
pub mod lab;
pub mod observe;
pub mod platform;
pub mod relay;
pub mod transport;

pub use milepost_core::{policy_file, progress, protocol};
