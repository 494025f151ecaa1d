//! What is said on one client stream: kept until its client has taken it, and a while longer for one that
//! comes back for what it has missed.
//!
//! The relay gives, a response takes; whichever comes later finds what the other has left. A stream
//! without a client goes on: that its client is gone does not mean that its requests are given up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::task::AtomicWaker;
use http::StatusCode;

use super::bell::Bell;
use super::frame;
use crate::http::body::{BATCH_BYTES, Batch};
use crate::jsonrpc::{Key, Kind, Message, own_error};
use crate::progress::StreamId;

/// Messages of one stream that are kept; a client that comes back later than this has missed
/// notifications.
const EVENTS_MAX: usize = 1000;

/// The same in bytes.
const BYTES_MAX: usize = 1 << 20;

/// Answers and requests of a server are kept up to this, in bytes: a client waits for them. In the
/// place of a longer answer it finds an error.
const ANSWERS_MAX: usize = 16 << 20;

/// A message up to this length is copied: it must not keep the buffer that it came in.
const COPY_MAX: usize = 4 << 10;

/// What a message is to those who keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// An answer: of the only request, of one of several, or of several.
    Answer,
    /// A request of the server.
    Request,
    /// Anything else.
    Other,
}

/// One message.
struct Kept {
    /// It is the so-manieth of its stream.
    number: u64,
    what: What,
    /// Whose answer it is, if that is one request.
    id: Option<Bytes>,
    pieces: VecDeque<Bytes>,
    /// Pieces ahead of these that are not kept any more.
    lost: usize,
    bytes: usize,
    /// All of it has come.
    whole: bool,
}

/// How a stream ended before its requests were answered.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) status: StatusCode,
    pub(super) why: &'static str,
}

/// How far a client has got: all up to a message, and pieces of the next.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    number: u64,
    pieces: usize,
}

#[derive(Default)]
struct State {
    kept: VecDeque<Kept>,
    bytes: usize,
    /// The number of the last message.
    last: u64,
    /// Up to where the client was given it.
    given: Place,
    /// Up to where it has taken it.
    taken: u64,
    /// Bytes that it has not taken.
    untaken: usize,
    /// Who reads: the newest.
    reader: u64,
    attached: bool,
    /// The relay waits to hear that all has been taken.
    awaited: bool,
    /// Requests without an answer: how they are compared, and the text of their ids.
    open: Vec<(Key, Bytes)>,
    /// The relay knows of it.
    heard: bool,
    over: bool,
    broken: Option<Broken>,
    /// The client was given event ids.
    resumable: bool,
}

/// What is kept of one client stream.
pub(super) struct Store {
    pub(super) id: StreamId,
    /// Its client takes nothing but answers.
    pub(super) only_answers: bool,
    state: Mutex<State>,
    client: AtomicWaker,
    bell: Arc<Bell>,
}

/// What an answer to a POST begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// There is nothing yet that decides it.
    Wait,
    /// Answers, and nothing else came.
    Answers,
    /// A large answer, of which the rest is to come.
    Large,
    /// Something else: only a stream can carry it.
    Events,
}

impl Store {
    pub(super) fn new(id: StreamId, only_answers: bool, bell: Arc<Bell>) -> Arc<Self> {
        let (state, client) = (Mutex::default(), AtomicWaker::new());
        Arc::new(Self { id, only_answers, state, client, bell })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client reads from here on: from behind the message of this number, or from where the last one
    /// stopped, which reads no more.
    pub(super) fn attach(self: &Arc<Self>, from: Option<u64>) -> Attached {
        let mut state = self.lock();
        state.reader += 1;
        state.attached = true;
        state.taken = from.unwrap_or(state.taken).min(state.last);
        state.given = Place { number: state.taken, pieces: 0 };
        let reader = state.reader;
        drop(state);
        self.client.wake();
        Attached { store: Arc::clone(self), reader }
    }

    // ---- the relay's side ----

    /// A whole message. Says whether a client is there that has to take it.
    pub(super) fn put(&self, message: &Message) -> bool {
        let text = message.raw().trim_ascii_end();
        let text = match text.len() {
            0..COPY_MAX => Bytes::copy_from_slice(text),
            length => message.raw().slice(..length),
        };
        let what = what(message.kind(), || message.elements().all(|one| is_answer(&one)));
        let id = message.id().filter(|_| what == What::Answer);
        self.push(what, id, text, true)
    }

    /// The first piece of a message that is too large to be held.
    pub(super) fn begin(&self, kind: Kind, id: Option<Bytes>, piece: &Bytes) -> bool {
        self.push(what(kind, || false), id, piece.clone(), false)
    }

    /// More of it; `last`: it is over.
    pub(super) fn more(&self, piece: &Bytes, last: bool) -> bool {
        let mut state = self.lock();
        let (attached, bytes) = (state.attached, piece.len());
        let Some(large) = state.kept.back_mut().filter(|large| !large.whole) else {
            return false;
        };
        large.whole = last;
        if !piece.is_empty() {
            large.pieces.push_back(piece.clone());
            large.bytes += bytes;
        }
        state.bytes += bytes;
        self.pushed(state, bytes);
        attached
    }

    fn push(&self, what: What, id: Option<Bytes>, text: Bytes, whole: bool) -> bool {
        let mut state = self.lock();
        state.last += 1;
        let (number, bytes, attached) = (state.last, text.len(), state.attached);
        let pieces = VecDeque::from([text]);
        state.kept.push_back(Kept { number, what, id, pieces, lost: 0, bytes, whole });
        state.bytes += bytes;
        self.pushed(state, bytes);
        attached
    }

    fn pushed(&self, mut state: MutexGuard<'_, State>, bytes: usize) {
        state.awaited = state.attached;
        state.untaken += bytes;
        state.make_room();
        drop(state);
        self.client.wake();
    }

    /// Whether its client has been given enough for one write.
    pub(super) fn is_full(&self) -> bool {
        let state = self.lock();
        state.attached && state.untaken >= BATCH_BYTES
    }

    /// These requests are answered here. The relay knows of the stream now.
    pub(super) fn expect(&self, requests: impl IntoIterator<Item = (Key, Bytes)>) {
        let mut state = self.lock();
        state.heard = true;
        state.open.extend(requests);
    }

    /// A request has its answer, or needs none. False if there is no such request.
    pub(super) fn settle(&self, id: &Key) -> bool {
        let mut state = self.lock();
        let found = state.open.iter().position(|(open, _)| open == id);
        found.map(|place| state.open.swap_remove(place)).is_some()
    }

    /// Requests without an answer.
    pub(super) fn open(&self) -> usize {
        self.lock().open.len()
    }

    pub(super) fn awaits(&self, id: &Key) -> bool {
        self.lock().open.iter().any(|(open, _)| open == id)
    }

    /// Its client reads no more, whatever it thinks: it has taken nothing for too long.
    pub(super) fn evict(&self) {
        let mut state = self.lock();
        state.reader += 1;
        state.detach();
        drop(state);
        self.client.wake();
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.lock().over = true;
        self.client.wake();
    }

    /// Nothing more comes, although something should have.
    pub(super) fn break_off(&self, broken: &Broken) {
        let mut state = self.lock();
        if !state.over {
            state.over = true;
            state.broken = Some(broken.clone());
        }
        drop(state);
        self.client.wake();
    }

    // ---- the session's side ----

    /// Whether nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Whether a client may come back for it, and how many bytes are kept for that.
    pub(super) fn resumable(&self) -> Option<usize> {
        let state = self.lock();
        (state.resumable || !state.over).then_some(state.bytes)
    }

    /// Whether there is anything for a client that has all up to this message.
    pub(super) fn has_more(&self, from: u64) -> bool {
        let state = self.lock();
        !state.over || state.last > from || !state.open.is_empty()
    }
}

fn is_answer(message: &Message) -> bool {
    message.kind() == Kind::Response
}

fn what(kind: Kind, all_answers: impl FnOnce() -> bool) -> What {
    match kind {
        Kind::Response => What::Answer,
        Kind::Batch if all_answers() => What::Answer,
        Kind::Request => What::Request,
        _ => What::Other,
    }
}

impl State {
    fn detach(&mut self) {
        self.attached = false;
        self.given = Place { number: self.taken, pieces: 0 };
        self.untaken = 0;
        self.make_room();
    }

    /// Notifications go first, the oldest; those that a client is about to take stay.
    fn make_room(&mut self) {
        while self.kept.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            let (taken, attached) = (self.taken, self.attached);
            let goes = |one: &Kept| one.what == What::Other && one.whole;
            let place =
                self.kept.iter().position(|one| goes(one) && (one.number <= taken || !attached));
            let Some(gone) = place.and_then(|place| self.kept.remove(place)) else { break };
            self.bytes -= gone.bytes;
        }
        if self.bytes <= ANSWERS_MAX {
            return;
        }
        let (given, attached) = (self.given, self.attached);
        for one in &mut self.kept {
            let done = match one.number.cmp(&(given.number + 1)) {
                _ if !attached => usize::MAX,
                std::cmp::Ordering::Less => usize::MAX,
                std::cmp::Ordering::Equal => given.pieces,
                std::cmp::Ordering::Greater => 0,
            };
            while self.bytes > ANSWERS_MAX
                && one.lost < done
                && let Some(piece) = one.pieces.pop_front()
            {
                one.lost += 1;
                one.bytes -= piece.len();
                self.bytes -= piece.len();
            }
        }
    }

    /// The next message that the client was not given all of.
    fn next(&self) -> Option<&Kept> {
        let place = self.kept.partition_point(|one| one.number <= self.given.number);
        self.kept.get(place)
    }
}

/// A client that reads a stream. It has left when this is dropped.
pub(super) struct Attached {
    pub(super) store: Arc<Store>,
    reader: u64,
}

/// How a client's reading goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goes {
    On,
    /// It has been given everything, and nothing more comes.
    Over,
    /// Another reads now.
    Elsewhere,
}

impl Attached {
    /// What the answer can begin with. Woken when that changes.
    pub(super) fn poll_look(&self, cx: &Context<'_>) -> Poll<Look> {
        self.store.client.register(cx.waker());
        let mut state = self.store.lock();
        match state.look() {
            Look::Wait => {
                self.goes_on(&mut state);
                Poll::Pending
            }
            look => Poll::Ready(look),
        }
    }

    /// Ready when nothing more comes. What there is can then be looked at.
    pub(super) fn poll_over(&self, cx: &Context<'_>) -> Poll<Look> {
        self.store.client.register(cx.waker());
        let mut state = self.store.lock();
        if state.over {
            return Poll::Ready(state.look());
        }
        self.goes_on(&mut state);
        Poll::Pending
    }

    /// What there is waits here, and what follows may come.
    fn goes_on(&self, state: &mut State) {
        state.untaken = 0;
        if std::mem::take(&mut state.awaited) {
            self.store.bell.taken(self.store.id);
        }
    }

    /// The client of a stream that is over gets these: its answers, and errors for what has none.
    pub(super) fn answers(&self) -> (Vec<Bytes>, Option<Broken>) {
        let mut state = self.store.lock();
        let mut texts = Vec::new();
        for one in &state.kept {
            texts.push(one.text(&state.broken));
        }
        let broken = state.broken.clone();
        if let Some(broken) = &broken {
            let open = std::mem::take(&mut state.open);
            texts.extend(open.iter().map(|(_, id)| own_error(id, broken.why, None)));
        }
        state.given = Place { number: state.last, pieces: 0 };
        drop(state);
        self.taken();
        (texts, broken)
    }

    /// The client is given what there is, as events; with ids it can come back for them.
    pub(super) fn events(&self, ids: bool, out: &mut Batch) -> Goes {
        let mut state = self.store.lock();
        if state.reader != self.reader {
            return Goes::Elsewhere;
        }
        state.resumable |= ids;
        let stream = self.store.id;
        while !out.is_full() {
            let from = state.given.pieces;
            let Some(next) = state.next() else { break };
            let number = next.number;
            if from < next.lost {
                let text = next.text(&state.broken);
                frame::event(ids.then_some((stream, number)), &text, out);
                state.given = Place { number, pieces: 0 };
                continue;
            }
            if from == 0 {
                frame::head(ids.then_some((stream, number)), out);
            }
            let pieces = next.pieces.iter().skip(from - next.lost);
            let mut count = from;
            for piece in pieces {
                frame::data(piece, out);
                count += 1;
            }
            if next.whole {
                frame::tail(out);
                state.given = Place { number, pieces: 0 };
            } else {
                state.given.pieces = count;
                break;
            }
        }
        if state.over && state.next().is_none() && !out.is_full() {
            if let Some(broken) = state.broken.clone() {
                for (_, id) in std::mem::take(&mut state.open) {
                    frame::event(None, &own_error(&id, broken.why, None), out);
                }
            }
            return Goes::Over;
        }
        Goes::On
    }

    /// The client is given pieces of a large answer, as they are.
    pub(super) fn pieces(&self, out: &mut Batch) -> Goes {
        let mut state = self.store.lock();
        if state.reader != self.reader {
            return Goes::Elsewhere;
        }
        let Some(large) = state.kept.front_mut() else { return Goes::Over };
        let pieces = std::mem::take(&mut large.pieces);
        large.lost += pieces.len();
        let (count, whole) = (large.lost, large.whole);
        let bytes = std::mem::take(&mut large.bytes);
        state.bytes -= bytes;
        state.given.pieces = count;
        pieces.iter().for_each(|piece| out.raw(piece));
        if whole || state.over { Goes::Over } else { Goes::On }
    }

    /// The client has taken what it was given.
    pub(super) fn taken(&self) {
        let mut state = self.store.lock();
        if state.reader != self.reader {
            return;
        }
        state.taken = state.given.number;
        let (given, pieces) =
            (state.given.pieces, state.next().map(|next| next.lost + next.pieces.len()));
        if pieces.is_none_or(|pieces| pieces == given) {
            state.make_room();
            self.goes_on(&mut state);
        }
    }

    /// Whether the client was given some of a large message, and not all of it.
    pub(super) fn is_midway(&self) -> bool {
        self.store.lock().given.pieces > 0
    }

    /// Is woken when there is more.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.store.client.register(cx.waker());
    }
}

impl State {
    fn look(&self) -> Look {
        let large = self.kept.front().is_some_and(|first| {
            first.what == What::Answer && !first.whole && self.kept.len() == 1
        });
        let answers = || self.kept.iter().all(|one| one.what == What::Answer && one.whole);
        match (large, self.over) {
            (true, _) if self.open.len() <= 1 => Look::Large,
            _ if !answers() => Look::Events,
            (_, true) => Look::Answers,
            (_, false) => Look::Wait,
        }
    }
}

impl Kept {
    /// The message, or what stands for one that was too large to be kept.
    fn text(&self, broken: &Option<Broken>) -> Bytes {
        if self.lost == 0 && self.whole {
            return match self.pieces.len() {
                1 => self.pieces.front().cloned().unwrap_or_default(),
                _ => self.pieces.iter().flatten().copied().collect(),
            };
        }
        let why = broken.as_ref().map_or("the answer is too large to be kept", |broken| broken.why);
        own_error(self.id.as_deref().unwrap_or(b"null"), why, None)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut state = self.store.lock();
        if state.reader != self.reader {
            return;
        }
        state.detach();
        if !state.heard {
            state.over = true;
        }
        self.goes_on(&mut state);
    }
}
