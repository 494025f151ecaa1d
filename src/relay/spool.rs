//! Server messages that are too large for memory, if several clients share the server's connection. It is often known
//! only at the end of such a message which client it is for; until then the message is kept in a file.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::observe::metrics::RouteCounts;
use crate::progress::{Origin, Payload};
use crate::protocol::jsonrpc::{Kind, Message, Scan, own_error};
use crate::relay::legs::{FromServer, ServerLeg};
use crate::relay::spooled_response::{SpoolError, SpooledBytes, SpooledResponse, SpooledScan};
use crate::transport::byte_budget::ByteBudget;
use crate::transport::spill::Spill;

/// The limits for a server's large messages that are kept in files.
#[derive(Clone)]
pub struct SpillLimits {
    /// Maximum number of bytes of one message in a file.
    pub max: u64,
    /// Limit of bytes of all messages in files, shared by all servers.
    pub budget: Arc<ByteBudget>,
    /// Counts the answers that are refused.
    pub counts: Arc<RouteCounts>,
}

/// Keeps a server's large messages in files.
pub(crate) struct SpoolLarge {
    limits: SpillLimits,
    state: SpoolState,
}

enum SpoolState {
    Idle,
    /// A large message is arriving.
    Coming(Box<Coming>),
    /// A piece of the message is being written to the file.
    Writing(Box<SpooledScan>, BoxFuture<'static, Result<SpooledBytes, SpoolError>>),
}

struct Coming {
    scan: Box<SpooledScan>,
    /// The file so far, or the error because of which the rest is not kept.
    kept: Result<SpooledBytes, SpoolError>,
}

impl SpoolLarge {
    /// Returns a spool that keeps messages that come in pieces within these limits.
    pub(crate) fn new(limits: SpillLimits) -> Self {
        Self { limits, state: SpoolState::Idle }
    }

    /// Returns an empty spool with the same limits, for another server.
    pub(crate) fn afresh(self) -> Self {
        Self::new(self.limits)
    }

    /// Whether a piece is being written to the file.
    pub(crate) fn is_writing(&self) -> bool {
        matches!(self.state, SpoolState::Writing(..))
    }

    fn take(&mut self, piece: Bytes) {
        let SpoolState::Coming(coming) = std::mem::replace(&mut self.state, SpoolState::Idle)
        else {
            return;
        };
        let Coming { mut scan, kept } = *coming;
        // Scan the piece even if the message is not kept: it may contain the id, which the error needs.
        scan.feed(&piece);
        self.state = match kept {
            Err(error) => SpoolState::Coming(Box::new(Coming { scan, kept: Err(error) })),
            Ok(mut kept) => {
                // `poll_write` does the writing, because the file may be slow.
                let write = async move { kept.push(piece).await.map(|()| kept) };
                SpoolState::Writing(scan, write.boxed())
            }
        };
    }

    /// Waits until the current piece is written to the file.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let SpoolState::Writing(_, write) = &mut self.state {
            let kept = ready!(write.as_mut().poll(cx));
            if let SpoolState::Writing(scan, _) =
                std::mem::replace(&mut self.state, SpoolState::Idle)
            {
                self.state = SpoolState::Coming(Box::new(Coming { scan, kept }));
            }
        }
        Poll::Ready(())
    }

    fn end(&mut self, whole: bool, server: &mut impl ServerLeg) -> Option<FromServer> {
        let SpoolState::Coming(coming) = std::mem::replace(&mut self.state, SpoolState::Idle)
        else {
            return None;
        };
        let Coming { mut scan, kept } = *coming;
        scan.end();
        let envelope = &scan.envelope;
        if envelope.kind() != Kind::Response {
            refuse(envelope, server);
            return None;
        }
        let id = envelope.id()?;
        let why = match kept {
            // Return only a complete message, because a client would take a part for the whole answer.
            Ok(kept) if whole => {
                return Some(FromServer::Spooled(Box::new(SpooledResponse::new(*scan, kept))));
            }
            Ok(_) => "the server's answer was broken off".to_owned(),
            Err(error) => {
                self.limits.counts.count_unspilled_answer();
                tracing::error!(%error, "an answer of the server could not be stored");
                format!("the server's answer could not be passed on: {error}")
            }
        };
        let error = Message::parse(own_error(&id.to_json(), &why, None));
        Some(FromServer::Message(Origin::Shared, error))
    }

    /// Examines a server message. Returns it unless it goes to the file.
    pub(crate) fn intercept(
        &mut self,
        received: FromServer,
        server: &mut impl ServerLeg,
    ) -> Option<FromServer> {
        match received {
            FromServer::Start(_, piece) => {
                let (spill, room) = (Spill::new(self.limits.max), self.limits.budget.room());
                let (scan, kept) = (Box::default(), Ok(SpooledBytes { spill, room }));
                self.state = SpoolState::Coming(Box::new(Coming { scan, kept }));
                self.take(piece);
                None
            }
            FromServer::Piece(_, piece) => {
                self.take(piece);
                None
            }
            FromServer::End(_, whole) => self.end(whole, server),
            other => Some(other),
        }
    }
}

/// Refuses a large message that is not an answer. Its client stream is unknown, and the server must not wait for ever.
fn refuse(scan: &Scan, server: &mut impl ServerLeg) {
    tracing::warn!(kind = ?scan.kind(), "a message of the server is too large; the message is not forwarded");
    if let Some(id) = scan.id().filter(|_| scan.kind() == Kind::Request) {
        let why = "the request is too large to be passed on";
        let error = own_error(&id.to_json(), why, None);
        server.send(None, Payload::own(error), &None);
    }
}
