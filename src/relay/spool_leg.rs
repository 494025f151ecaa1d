//! A server leg whose large messages are kept in files, for a server whose one stream carries the answers for
//! several client streams.

use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::progress::{Origin, Payload, StreamId};
use crate::protocol::jsonrpc::{Kind, Message, Scan};
use crate::relay::legs::{ClientHeaders, FromServer, ServerLeg};
use crate::relay::spool::{SpillLimits, SpoolLarge};

/// A leg, and the large messages of its server apart: the id of an answer may come behind its result, and an
/// answer belongs to one client stream only.
pub struct SpoolLeg<L> {
    leg: L,
    spool: SpoolLarge,
    /// A large request or notification passes: its kind was known from its first piece.
    is_raw: bool,
}

impl<L: ServerLeg> SpoolLeg<L> {
    /// `leg` with files for its large messages, within these limits.
    pub fn new(leg: L, limits: SpillLimits) -> Self {
        Self { leg, spool: SpoolLarge::new(limits), is_raw: false }
    }

    fn intercept(&mut self, received: FromServer) -> Option<FromServer> {
        // A message on the response to a POST has one owner from its beginning.
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
            if self.leg.is_writing() {
                // The server was told something just now.
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

    fn send_start(&mut self, piece: Bytes, headers: &ClientHeaders) {
        self.leg.send_start(piece, headers);
    }

    fn send_piece(&mut self, piece: Bytes) {
        self.leg.send_piece(piece);
    }

    fn send_end(&mut self) {
        self.leg.send_end();
    }

    fn break_off(&mut self) {
        self.leg.break_off();
    }

    fn send_raw(&mut self, bytes: Bytes) {
        self.leg.send_raw(bytes);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.leg.poll_flush(cx)
    }

    fn is_writing(&self) -> bool {
        self.leg.is_writing()
    }

    fn is_behind(&self) -> bool {
        self.leg.is_behind()
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.leg.poll_close(cx)
    }

    fn stop(&mut self) {
        self.leg.stop();
    }
}
