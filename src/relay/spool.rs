//! Messages of a server that are too large to be held, where several clients share its wire: whose they
//! are is often known only at their end, and until then they are kept in a file.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};

use super::legs::{FromServer, Headers, Server, as_the_leg_inside};
use crate::progress::{Origin, Payload, StreamId};
use crate::protocol::jsonrpc::{Key, Kind, Message, Scan, own_error};
use crate::transport::spill::{Spill, SpillError};

/// The least that is given first of a message from a file, in bytes.
const HEAD_MIN: usize = 4 << 10;

/// A message that was kept apart, with all that is known of it.
pub struct Apart {
    scan: Scan,
    spill: Spill,
}

impl Apart {
    /// The id that it answers, as the server knows it.
    pub(super) fn id(&self) -> Option<Key> {
        self.scan.id()
    }

    /// Its bytes, with the client's id in the place of the one it came with, to be given to a stream.
    pub(super) fn into_pieces(self, stream: StreamId, id: Bytes) -> Pieces {
        let replace = self.scan.id_place().map(|place| (place, id));
        let left = self.spill.into_reader(replace).boxed();
        Pieces { stream, left, head: BytesMut::new(), begun: false }
    }
}

/// What is left to be given of such a message.
pub(super) struct Pieces {
    pub(super) stream: StreamId,
    left: BoxStream<'static, std::io::Result<Bytes>>,
    /// What comes first, until it shows what it is: the id may stand alone.
    head: BytesMut,
    /// Some of it has been given: nothing may come between.
    pub(super) begun: bool,
}

impl Pieces {
    /// The next piece; `None` after the last.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        while !self.begun {
            let piece = ready!(self.poll_read(cx));
            self.begun = piece.is_none();
            self.head.extend_from_slice(&piece.unwrap_or_default());
            self.begun |= self.head.len() >= HEAD_MIN;
        }
        if !self.head.is_empty() {
            return Poll::Ready(Some(self.head.split().freeze()));
        }
        self.poll_read(cx)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = ready!(Pin::new(&mut self.left).poll_next(cx));
        Poll::Ready(next.and_then(|piece| match piece {
            Ok(piece) => Some(piece),
            Err(error) => {
                tracing::error!(%error, "an answer that was kept in a file cannot be read; it is cut off");
                None
            }
        }))
    }
}

/// A server whose large messages are kept apart, or pass in pieces where one client has it for itself.
pub struct Spilling<S> {
    server: S,
    max: Option<u64>,
    state: State,
}

enum State {
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

impl<S: Server> Spilling<S> {
    /// Messages of `server` that come in pieces are kept apart and may have `max` bytes: to a longer one
    /// its caller gets an error. `None`: they pass.
    pub fn new(server: S, max: Option<u64>) -> Self {
        Self { server, max, state: State::Idle }
    }

    fn take(&mut self, piece: Bytes) {
        let State::Coming(coming) = std::mem::replace(&mut self.state, State::Idle) else { return };
        let Coming { mut scan, kept } = *coming;
        scan.feed(&piece);
        self.state = match kept {
            Err(error) => State::Coming(Box::new(Coming { scan, kept: Err(error) })),
            Ok(mut spill) => {
                let write = async move {
                    let pushed = spill.push(piece).await;
                    (spill, pushed)
                };
                State::Writing(scan, write.boxed())
            }
        };
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Writing(_, write) = &mut self.state {
            let (spill, pushed) = ready!(write.as_mut().poll(cx));
            if let State::Writing(scan, _) = std::mem::replace(&mut self.state, State::Idle) {
                let kept = pushed.map(|()| spill);
                self.state = State::Coming(Box::new(Coming { scan, kept }));
            }
        }
        Poll::Ready(())
    }

    fn end(&mut self, whole: bool) -> Option<FromServer> {
        let State::Coming(coming) = std::mem::replace(&mut self.state, State::Idle) else {
            return None;
        };
        let Coming { scan, kept } = *coming;
        if scan.kind() != Kind::Response {
            self.refuse(&scan);
            return None;
        }
        let id = scan.id()?;
        let why = match kept {
            Ok(spill) if whole => return Some(FromServer::Apart(Box::new(Apart { scan, spill }))),
            Ok(_) => "the server's answer was broken off".to_owned(),
            Err(error) => {
                tracing::error!(%error, "an answer of the server could not be kept");
                format!("the server's answer could not be passed on: {error}")
            }
        };
        let error = Message::parse(own_error(&id.to_json(), &why, None));
        Some(FromServer::Message(Origin::Shared, error))
    }

    /// What is no answer has no stream of its own to go to in pieces. A server does not wait for ever.
    fn refuse(&mut self, scan: &Scan) {
        tracing::warn!(kind = ?scan.kind(), "a message of the server is too large; it is not passed on");
        if let Some(id) = scan.id().filter(|_| scan.kind() == Kind::Request) {
            let why = "the request is too large to be passed on";
            let error = Message::parse(own_error(&id.to_json(), why, None));
            let payload = Payload::of(&error);
            self.server.say(&error, payload, &None);
        }
    }

    /// Takes what the server says; what is left of it for others.
    fn judge(&mut self, said: FromServer) -> Option<FromServer> {
        let Some(max) = self.max else { return Some(said) };
        match said {
            FromServer::Start(_, piece) => {
                let kept = Ok(Spill::new(max));
                self.state = State::Coming(Box::new(Coming { scan: Scan::default(), kept }));
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

impl<S: Server> Server for Spilling<S> {
    fn poll_said(&mut self, cx: &mut Context<'_>) -> Poll<FromServer> {
        loop {
            ready!(self.poll_write(cx));
            let said = ready!(self.server.poll_said(cx));
            if let Some(said) = self.judge(said) {
                return Poll::Ready(said);
            }
            if self.server.is_writing() {
                // It was told something just now.
                cx.waker().wake_by_ref();
            }
        }
    }

    fn said(&mut self) -> Option<FromServer> {
        while !matches!(self.state, State::Writing(..)) {
            let said = self.server.said()?;
            if let Some(said) = self.judge(said) {
                return Some(said);
            }
        }
        None
    }

    fn say(&mut self, message: &Message, payload: Payload, headers: &Headers) -> Option<StreamId> {
        self.server.say(message, payload, headers)
    }

    fn say_start(&mut self, piece: Bytes, headers: &Headers) {
        self.server.say_start(piece, headers);
    }

    as_the_leg_inside!();

    fn pass_bytes(&mut self) -> bool {
        self.max.is_none() && self.server.pass_bytes()
    }

    fn heard_aside(&mut self) {
        self.server.heard_aside();
    }
}
