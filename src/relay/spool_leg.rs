//! A server leg that keeps large messages in files. The server answers several client streams on a single stream.

use std::task::{Context, Poll, ready};

use crate::progress::{Origin, Payload, StreamId};
use crate::protocol::jsonrpc::{Kind, Message, Scan};
use crate::relay::legs::{Backlog, ClientHeaders, FromServer, LegFact, MessagePart, ServerLeg};
use crate::relay::spool::{SpillLimits, SpoolLarge};

/// A leg that keeps its server's large messages in files: the id of an answer may come after its result, and the answer
/// belongs to only one client stream.
pub struct SpoolLeg<L> {
    leg: L,
    spool: SpoolLarge,
    /// Whether a large request or notification is being forwarded. Its first piece showed that it is not an answer.
    is_raw: bool,
}

impl<L: ServerLeg> SpoolLeg<L> {
    /// Returns `leg` with files for its large messages, within these limits.
    pub fn new(leg: L, limits: SpillLimits) -> Self {
        Self { leg, spool: SpoolLarge::new(limits), is_raw: false }
    }

    fn intercept(&mut self, received: FromServer) -> Option<FromServer> {
        // A large message on the response to a POST has one receiver from its beginning, so it needs no file.
        match &received {
            FromServer::Start(Origin::Shared, piece) => {
                let mut scan = Scan::default();
                scan.feed(piece);
                self.is_raw = matches!(scan.kind(), Kind::Request | Kind::Notification);
            }
            FromServer::Piece(Origin::Shared, _) | FromServer::End(Origin::Shared, _) => {}
            _ => return Some(received),
        }
        if self.is_raw { Some(received) } else { self.spool.intercept(received, &mut self.leg) }
    }
}

impl<L: ServerLeg> ServerLeg for SpoolLeg<L> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        loop {
            ready!(self.spool.poll_write(cx));
            let received = ready!(self.leg.poll_receive(cx));
            if let Some(received) = self.intercept(received) {
                return Poll::Ready(received);
            }
            if self.leg.backlog().is_writing() {
                // `refuse` may have queued an error for the server. Wake the task, so that the error is written.
                cx.waker().wake_by_ref();
            }
        }
    }

    fn try_receive(&mut self) -> Option<FromServer> {
        while !self.spool.is_writing() {
            let received = self.leg.try_receive()?;
            if let Some(received) = self.intercept(received) {
                return Some(received);
            }
        }
        None
    }

    fn send(
        &mut self,
        message: Option<&Message>,
        payload: Payload,
        headers: &ClientHeaders,
    ) -> Option<StreamId> {
        self.leg.send(message, payload, headers)
    }

    fn send_part(&mut self, part: MessagePart, headers: &ClientHeaders) {
        self.leg.send_part(part, headers);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.leg.poll_flush(cx)
    }

    fn backlog(&self) -> Backlog {
        self.leg.backlog()
    }

    fn enter_raw_mode(&mut self) -> bool {
        // Raw mode would forward bytes as they come, but large messages must wait in a file.
        false
    }

    fn note(&mut self, fact: &LegFact) {
        self.leg.note(fact);
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.leg.poll_close(cx)
    }

    fn stop(&mut self) {
        self.leg.stop();
    }
}
