//! The leg towards a server that is reached over HTTP, for clients of another transport: Streamable HTTP
//! of every revision, and HTTP+SSE.
//!
//! ```text
//! HttpUpstreamLeg (leg): polls, timers, large messages
//!   UpstreamClient (client): order of messages, answers; recovery from failures
//!     SendQueue ──> Exchange ──> ResponseReader ──> Inbox ──> relay
//!     UpstreamSession, ListenStream, HttpSseStream, PendingRequests, ToolHeaders, ToolRefresh
//! ```
//!
//! The leg has no task: polling the leg polls all its exchanges. The leg awaits the heads of responses
//! while it sends messages, and reads bodies only while the relay takes their messages.

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
