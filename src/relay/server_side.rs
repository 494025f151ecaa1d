//! The leg towards a server, behind a modern face if the route has one.

use std::task::{Context, Poll};

use crate::progress::{Payload, StreamId};
use crate::protocol::jsonrpc::Message;
use crate::relay::ModernFace;
use crate::relay::legs::{Backlog, ClientHeaders, FromServer, LegFact, MessagePart, ServerLeg};
use crate::relay::modern_face::leg::FaceLeg;

/// The leg towards the server, with or without a modern face.
pub enum ServerSide<L> {
    /// Clients use the server directly.
    Plain(L),
    /// Clients of 2026-07-28 use an older server through a modern face.
    Modern(Box<FaceLeg<L>>),
}

impl<L: ServerLeg> ServerSide<L> {
    /// Returns `leg`, behind `face` if it is `Some`.
    pub fn new(leg: L, face: Option<ModernFace>) -> Self {
        match face {
            None => Self::Plain(leg),
            Some(face) => Self::Modern(Box::new(FaceLeg::new(leg, face))),
        }
    }

    /// Returns the leg without its face.
    pub fn inner(&mut self) -> &mut L {
        match self {
            Self::Plain(leg) => leg,
            Self::Modern(leg) => leg.inner(),
        }
    }
}

impl<L: ServerLeg> ServerLeg for ServerSide<L> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        match self {
            Self::Plain(leg) => leg.poll_receive(cx),
            Self::Modern(leg) => leg.poll_receive(cx),
        }
    }

    fn try_receive(&mut self) -> Option<FromServer> {
        match self {
            Self::Plain(leg) => leg.try_receive(),
            Self::Modern(leg) => leg.try_receive(),
        }
    }

    fn send(
        &mut self,
        message: Option<&Message>,
        payload: Payload,
        headers: &ClientHeaders,
    ) -> Option<StreamId> {
        match self {
            Self::Plain(leg) => leg.send(message, payload, headers),
            Self::Modern(leg) => leg.send(message, payload, headers),
        }
    }

    fn send_part(&mut self, part: MessagePart, headers: &ClientHeaders) {
        self.inner().send_part(part, headers);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.inner().poll_flush(cx)
    }

    fn backlog(&self) -> Backlog {
        match self {
            Self::Plain(leg) => leg.backlog(),
            Self::Modern(leg) => leg.backlog(),
        }
    }

    fn enter_raw_mode(&mut self) -> bool {
        match self {
            Self::Plain(leg) => leg.enter_raw_mode(),
            Self::Modern(leg) => leg.enter_raw_mode(),
        }
    }

    fn note(&mut self, fact: &LegFact) {
        match self {
            Self::Plain(leg) => leg.note(fact),
            Self::Modern(leg) => leg.note(fact),
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inner().poll_close(cx)
    }

    fn stop(&mut self) {
        self.inner().stop();
    }
}
