//! A message of a client that is too large for memory, on its way to the server.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::session::{BridgeSession, ENDED, SessionCommand};
use crate::gateway::bridge::replay_buffer::ReplayBuffer;
use crate::protocol::jsonrpc::{Kind, Message, Scan};
use crate::protocol::mcp::CANCELLED;
use crate::relay::ClientHeaders;
use crate::transport::http::request_body::{PAUSE_MAX, RequestBody};
use crate::transport::mcp_http::content::on_one_line;

/// The result of a message that was sent in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upload {
    /// The message is complete.
    Complete,
    /// The session has ended.
    Ended,
    /// The rest of the message did not arrive.
    BrokenOff,
}

/// Returns a cancellation for the request of an incomplete message, which no server can read and which gets no answer.
fn cancel(scan: &Scan) -> Option<SessionCommand> {
    let id = scan.id().filter(|_| scan.kind() == Kind::Request)?;
    let head = format!(r#"{{"jsonrpc":"2.0","method":"{CANCELLED}","params":{{"requestId":"#);
    let text = [head.as_bytes(), &id.to_json(), b"}}"].concat();
    Some(SessionCommand::Tell(Message::parse(text.into()), None))
}

/// A guard that ends a message in pieces even if its sender is dropped, so that the next message does not become a part
/// of it.
struct Begun<'a> {
    session: &'a BridgeSession,
    buffer: Arc<ReplayBuffer>,
    scan: Option<Scan>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Some(scan) = self.scan.take() else { return };
        let cancel = cancel(&scan);
        let end = SessionCommand::End(Arc::clone(&self.buffer), scan);
        // If the end of the line cannot be queued, the next message would become a part of this message. So the session
        // ends instead.
        if ![Some(end), cancel].into_iter().flatten().all(|one| self.session.try_send(one)) {
            self.session.end(ENDED);
        }
    }
}

impl BridgeSession {
    /// Forwards a message while it arrives, on one line. `buffer` gets the answer. The beginning of a message that
    /// breaks off has already reached the server and cannot be taken back.
    pub(crate) async fn send_in_pieces(
        &self,
        mut body: RequestBody,
        buffer: &Arc<ReplayBuffer>,
        headers: ClientHeaders,
    ) -> Upload {
        let _order = self.speaking.lock().await;
        let mut begun = Begun { session: self, buffer: Arc::clone(buffer), scan: None };
        let whole = loop {
            let frame = match timeout(PAUSE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                end => break matches!(end, Ok(None)),
            };
            let Ok(data) = frame.into_data() else { continue };
            let piece: Bytes = on_one_line(data);
            let first = begun.scan.is_none();
            begun.scan.get_or_insert_default().feed(&piece);
            let command = match first {
                true => SessionCommand::Start(Arc::clone(buffer), piece, headers.clone()),
                false => SessionCommand::Piece(piece),
            };
            if !self.send(command).await {
                begun.scan = None;
                return Upload::Ended;
            }
        };
        let Some(scan) = begun.scan.take() else { return Upload::BrokenOff };
        let cancel = cancel(&scan).filter(|_| !whole);
        for command in
            [Some(SessionCommand::End(Arc::clone(buffer), scan)), cancel].into_iter().flatten()
        {
            if !self.send(command).await {
                return Upload::Ended;
            }
        }
        if whole { Upload::Complete } else { Upload::BrokenOff }
    }
}
