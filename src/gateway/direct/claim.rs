//! The request of a client for the stream that the proxy holds for its session.

use tokio::sync::{mpsc, oneshot};

use crate::transport::http::body::Body;
use crate::transport::http::write_state::WriteState;

/// The way to ask for a held stream.
pub(crate) type ClaimSender = mpsc::Sender<ClaimRequest>;

/// A client that takes a held stream over.
pub(crate) struct ClaimRequest {
    pub(crate) write_state: WriteState,
    /// Takes the head and the body of the response.
    pub(crate) reply: oneshot::Sender<(http::response::Parts, Body)>,
}
