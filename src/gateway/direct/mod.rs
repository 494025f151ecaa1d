//! HTTP clients of HTTP servers. Each POST has a filter of its own.

use std::sync::{Arc, Mutex};

use self::accepted_callers::AcceptedCallers;
use self::sessions::Sessions;
use self::sse_streams::DirectSseStreams;
use crate::gateway::route_state::RouteState;
use crate::transport::http::cors::CorsOrigins;

pub(crate) mod accepted_callers;
pub(crate) mod claim;
pub(crate) mod control;
mod controlled_request;
pub(crate) mod event_stream;
pub(crate) mod exchange;
pub(crate) mod forward;
pub(crate) mod held_stream;
pub(crate) mod http_sse;
pub(crate) mod json_answer;
pub(crate) mod listen_stream;
pub(crate) mod mailbox;
mod odd_answers;
pub(crate) mod post;
mod post_stream;
pub(crate) mod response;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod sse_streams;
pub(crate) mod stream_body;
pub(crate) mod written_ids;

/// The direct path of a route, from HTTP clients to an HTTP server. After a reload the new value shares the tables of
/// the old one, if the server is the same.
pub(crate) struct Direct {
    pub(crate) state: Arc<RouteState>,
    pub(crate) sessions: Arc<Sessions>,
    /// Open streams of HTTP+SSE.
    pub(crate) sse_streams: Arc<DirectSseStreams>,
    /// The CORS headers that the server has sent, by origin.
    pub(crate) origins: Arc<Mutex<CorsOrigins>>,
    /// Callers without a session that the server has answered with success.
    pub(crate) accepted: Arc<AcceptedCallers>,
}
