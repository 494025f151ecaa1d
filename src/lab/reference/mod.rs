//! The reference server of `check-progress`: an MCP server that says exactly what a script tells. Proxies
//! are judged in front of this server, and clients with it.
//!
//! ```text
//! stdio, http: bytes ──> session: requests ──> script: steps ──> reply: one write each ──> bytes
//! ```

mod event_stream;
mod http;
mod http_body;
mod reply;
pub mod script;
pub mod seen;
mod session;
mod stdio;

pub use http::ReferenceHttp;
pub use session::{NAME, TOOLS};
pub use stdio::serve_stdio;
