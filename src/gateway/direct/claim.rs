//! The request of a client for the stream that Milepost holds for its session.

use tokio::sync::{mpsc, oneshot};

use crate::transport::http::body::Body;
use crate::transport::http::write_state::WriteState;

/// The channel on which a client asks for a held stream.
pub(crate) type ClaimSender = mpsc::Sender<ClaimRequest>;

/// A client that takes over a held stream.
pub(crate) struct ClaimRequest {
    pub(crate) write_state: WriteState,
    /// Receives the head and the body of the response.
    pub(crate) reply: oneshot::Sender<(http::response::Parts, Body)>,
}
