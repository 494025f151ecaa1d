//! The reference server of `check-progress`: an MCP server that sends exactly what a script says. Proxies are tested in
//! front of this server, and clients are tested with it.
//!
//! ```text
//! stdio, http: bytes ──> session: requests ──> script: steps ──> one write each ──> bytes
//! ```

mod event_stream;
mod http;
mod http_body;
pub mod script;
pub mod seen;
mod session;

use std::io;

use session::ReferenceSession;

use crate::gateway::mcp_server::serve_lines;
use crate::transport::stdio;

pub use http::ReferenceHttp;
pub use session::{NAME, ReferenceTerms, TOOLS};

/// Serves one client on standard input and output, until the input ends.
///
/// # Errors
/// If the output cannot be written.
pub async fn serve_stdio(terms: ReferenceTerms) -> io::Result<()> {
    let session = ReferenceSession::new(terms);
    serve_lines(stdio::input(), stdio::output(), |line, stream| {
        session.receive(serde_json::from_slice(&line).ok()?, stream)
    })
    .await
}
