//! Messages of a server that are too large to be held, where several clients share its wire: whose they
//! are is often known only at their end, and until then they are kept in a file.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::progress::{Origin, Payload, StreamId};
use crate::protocol::jsonrpc::{Kind, Message, Scan, own_error};
use crate::relay::legs::{ClientHeaders, FromServer, ServerLeg, delegate_to_server};
use crate::relay::spooled_response::SpooledResponse;
use crate::transport::spill::{Spill, SpillError};

/// A server whose large messages are kept apart, or pass in pieces where one client has it for itself.
pub struct SpoolLarge<S> {
    server: S,
    max: Option<u64>,
    state: SpoolState,
}

enum SpoolState {
    Idle,
    /// A large message is coming.
    Coming(Box<Coming>),
    /// A piece of it is being written.
    Writing(Scan, BoxFuture<'static, (Spill, Result<(), SpillError>)>),
}

struct Coming {
    scan: Scan,
    /// Why there is no point in keeping the rest.
    kept: Result<Spill, SpillError>,
}

impl<S: ServerLeg> SpoolLarge<S> {
    /// Messages of `server` that come in pieces are kept apart and may have `max` bytes: to a longer one
    /// its caller gets an error. `None`: they pass.
    pub fn new(server: S, max: Option<u64>) -> Self {
        Self { server, max, state: SpoolState::Idle }
    }

    fn take(&mut self, piece: Bytes) {
        let SpoolState::Coming(coming) = std::mem::replace(&mut self.state, SpoolState::Idle)
        else {
            return;
        };
        let Coming { mut scan, kept } = *coming;
        scan.feed(&piece);
        self.state = match kept {
            Err(error) => SpoolState::Coming(Box::new(Coming { scan, kept: Err(error) })),
            Ok(mut spill) => {
                let write = async move {
                    let pushed = spill.push(piece).await;
                    (spill, pushed)
                };
                SpoolState::Writing(scan, write.boxed())
            }
        };
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let SpoolState::Writing(_, write) = &mut self.state {
            let (spill, pushed) = ready!(write.as_mut().poll(cx));
            if let SpoolState::Writing(scan, _) =
                std::mem::replace(&mut self.state, SpoolState::Idle)
            {
                let kept = pushed.map(|()| spill);
                self.state = SpoolState::Coming(Box::new(Coming { scan, kept }));
            }
        }
        Poll::Ready(())
    }

    fn end(&mut self, whole: bool) -> Option<FromServer> {
        let SpoolState::Coming(coming) = std::mem::replace(&mut self.state, SpoolState::Idle)
        else {
            return None;
        };
        let Coming { scan, kept } = *coming;
        if scan.kind() != Kind::Response {
            self.refuse(&scan);
            return None;
        }
        let id = scan.id()?;
        let why = match kept {
            Ok(spill) if whole => {
                return Some(FromServer::Spooled(Box::new(SpooledResponse::new(scan, spill))));
            }
            Ok(_) => "the server's answer was broken off".to_owned(),
            Err(error) => {
                tracing::error!(%error, "an answer of the server could not be kept");
                format!("the server's answer could not be passed on: {error}")
            }
        };
        let error = Message::parse(own_error(&id.to_json(), &why, None));
        Some(FromServer::Message(Origin::Shared, error))
    }

    /// Refuses a message that is not an answer: it has no stream of its own for its pieces, and a
    /// server does not wait for ever.
    fn refuse(&mut self, scan: &Scan) {
        tracing::warn!(kind = ?scan.kind(), "a message of the server is too large; it is not passed on");
        if let Some(id) = scan.id().filter(|_| scan.kind() == Kind::Request) {
            let why = "the request is too large to be passed on";
            let error = Message::parse(own_error(&id.to_json(), why, None));
            let payload = Payload::of(&error);
            self.server.send(&error, payload, &None);
        }
    }

    /// Takes what the server says; what is left of it for others.
    fn intercept(&mut self, said: FromServer) -> Option<FromServer> {
        let Some(max) = self.max else { return Some(said) };
        match said {
            FromServer::Start(_, piece) => {
                let kept = Ok(Spill::new(max));
                self.state = SpoolState::Coming(Box::new(Coming { scan: Scan::default(), kept }));
                self.take(piece);
                None
            }
            FromServer::Piece(_, piece) => {
                self.take(piece);
                None
            }
            FromServer::End(_, whole) => self.end(whole),
            other => Some(other),
        }
    }
}

impl<S: ServerLeg> ServerLeg for SpoolLarge<S> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        loop {
            ready!(self.poll_write(cx));
            let said = ready!(self.server.poll_receive(cx));
            if let Some(said) = self.intercept(said) {
                return Poll::Ready(said);
            }
            if self.server.is_writing() {
                // It was told something just now.
                cx.waker().wake_by_ref();
            }
        }
    }

    fn try_receive(&mut self) -> Option<FromServer> {
        while !matches!(self.state, SpoolState::Writing(..)) {
            let said = self.server.try_receive()?;
            if let Some(said) = self.intercept(said) {
                return Some(said);
            }
        }
        None
    }

    fn send(
        &mut self,
        message: &Message,
        payload: Payload,
        headers: &ClientHeaders,
    ) -> Option<StreamId> {
        self.server.send(message, payload, headers)
    }

    fn send_start(&mut self, piece: Bytes, headers: &ClientHeaders) {
        self.server.send_start(piece, headers);
    }

    delegate_to_server!();

    fn enter_raw_mode(&mut self) -> bool {
        self.max.is_none() && self.server.enter_raw_mode()
    }

    fn stderr_activity(&mut self) {
        self.server.stderr_activity();
    }
}
