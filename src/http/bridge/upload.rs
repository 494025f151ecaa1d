//! A message of a client that is too large to be held, on its way to the server.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::frame;
use super::session::{Command, ENDED, Session};
use super::store::Store;
use crate::http::body::RequestBody;
use crate::http::reading::PAUSE_MAX;
use crate::jsonrpc::Scan;
use crate::relay::Headers;

/// Ends the message, whatever becomes of who sends it: the next one must not become a part of it.
struct Begun<'a> {
    session: &'a Session,
    store: Arc<Store>,
    scan: Option<Scan>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(scan) = self.scan.take()
            && !self.session.say_now(Command::End(Arc::clone(&self.store), scan))
        {
            self.session.end(ENDED);
        }
    }
}

impl Session {
    /// Says a message as it comes, on one line; false if the session has ended. `store` is where its
    /// answer goes. What breaks off reaches the server as it is: it cannot be taken back.
    pub(super) async fn say_in_pieces(
        &self,
        mut body: RequestBody,
        store: &Arc<Store>,
        headers: Headers,
    ) -> bool {
        let _order = self.speaking.lock().await;
        let mut begun = Begun { session: self, store: Arc::clone(store), scan: None };
        loop {
            let frame = timeout(PAUSE_MAX, body.frame()).await;
            let Ok(Some(Ok(frame))) = frame else { break };
            let Ok(data) = frame.into_data() else { continue };
            let piece: Bytes = frame::one_line(&data);
            let first = begun.scan.is_none();
            begun.scan.get_or_insert_default().feed(&piece);
            let command = match first {
                true => Command::Start(Arc::clone(store), piece, headers.clone()),
                false => Command::Piece(piece),
            };
            if !self.say(command).await {
                begun.scan = None;
                return false;
            }
        }
        let Some(scan) = begun.scan.take() else { return false };
        self.say(Command::End(Arc::clone(store), scan)).await
    }
}
