//! The leg towards a server over HTTP, for clients of another transport: Streamable HTTP of every revision, and
//! HTTP+SSE.
//!
//! ```text
//! HttpUpstreamLeg (leg): polls, timers, large messages
//!   UpstreamClient (client): order of messages, answers; recovery from failures
//!     SendQueue ──> Exchange ──> ResponseReader ──> Inbox ──> relay
//!     UpstreamSession, ListenStream, HttpSseStream, PendingRequests, ToolHeaders, ToolRefresh
//! ```
//!
//! The leg has no task of its own: polling it polls all its exchanges. While it sends messages, it also waits for the
//! heads of responses; bodies are read only while the relay takes their messages.

mod client;
mod error_status;
mod exchange;
mod http_sse;
mod inbox;
mod leg;
mod listen_stream;
mod outgoing;
mod pending;
mod requests;
mod send_queue;
mod session;
mod target;
mod tool_refresh;

pub use client::Reachability;
pub use leg::HttpUpstreamLeg;
pub(crate) use target::HeadersAccepted;
pub use target::UpstreamTarget;
