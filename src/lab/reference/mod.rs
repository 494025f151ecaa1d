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
use std::sync::Arc;
use std::time::Duration;

use seen::SeenNotes;
use session::{ReferenceSession, ReferenceTerms};

use crate::gateway::mcp_server::serve_lines;
use crate::transport::stdio;

pub use http::ReferenceHttp;
pub use session::{NAME, TOOLS};

/// Serves one client on standard input and output, until the input ends. `silence`: the duration of the
/// tool `silent`. `is_modern`: 2026-07-28 is spoken too.
///
/// # Errors
/// If the output cannot be written.
pub async fn serve_stdio(notes: SeenNotes, silence: Duration, is_modern: bool) -> io::Result<()> {
    let terms = ReferenceTerms { notes: Arc::new(notes), silence, is_modern };
    let session = ReferenceSession::new(terms);
    serve_lines(stdio::input(), stdio::output(), |line, stream| {
        session.receive(serde_json::from_slice(&line).ok()?, stream)
    })
    .await
}
