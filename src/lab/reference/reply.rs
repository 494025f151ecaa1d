//! The way of the reference server's messages to the client: what is said in one piece is written in one
//! piece.

use tokio::sync::mpsc;

/// Pieces that wait to be written. A script waits beyond the limit.
const PIECES_MAX: usize = 64;

/// One write.
#[derive(Debug, Clone)]
pub(super) enum ReplyPiece {
    /// Messages.
    Messages(Vec<String>),
    /// The response ends here for the reader of today.
    HangUp,
}

/// The stream of a request.
#[derive(Debug, Clone)]
pub(super) struct ReplyStream(mpsc::Sender<ReplyPiece>);

impl ReplyStream {
    pub(super) fn new() -> (Self, mpsc::Receiver<ReplyPiece>) {
        let (to, from) = mpsc::channel(PIECES_MAX);
        (Self(to), from)
    }

    /// Says something; a client that has left hears nothing.
    pub(super) async fn say(&self, piece: ReplyPiece) {
        let _ = self.0.send(piece).await;
    }

    /// Waits until nobody hears any more.
    pub(super) async fn left(&self) {
        self.0.closed().await;
    }
}
