//! A response of events: reads the server's, lets its judge decide what becomes of each, and writes
//! what is due, when the client takes it.
//!
//! It has no task and no queue of its own. The client's taking drives everything: the server's
//! connection, the filter, the clock. What a slow client leaves behind stays with the server, and
//! progress that has piled up meanwhile gives way to newer progress as it is read.

use crate::config::routes::Route;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::observe::error_chain::error_chain;
use crate::progress::Disposition;
use crate::protocol::sse;
use crate::protocol::sse::{Event, Events, Frame, Piece};
use crate::transport::http::body::{Batch, BodyProducer};
use crate::transport::http::client::{UpstreamBody, UpstreamError};
use crate::transport::http::write_state::WriteState;

// The listener's connection reports slowness, because data in buffers is old before anyone asks for
// more. While a client is blocked, nothing is read for it. Afterwards its progress is thinned until
// the client has kept up for a second; other messages wait their turn.
/// A client that takes so long to ask for more could not take what there was (rule G4).
pub(crate) const SLOW_AFTER: Duration = Duration::from_millis(50);

/// The longest event, in bytes, that is held whole so that a fault in it can be repaired. A longer
/// event is forwarded in pieces.
const EVENT_HELD_MAX: usize = 1 << 20;

/// How long such a client counts as slow.
pub(crate) const SLOW_FOR: Duration = Duration::from_secs(1);

/// How long nothing is read for a client that takes nothing.
pub(crate) const BLOCKED_FOR: Duration = Duration::from_millis(20);

/// The handler of a stream's events.
pub(crate) trait EventHandler: Send {
    /// One event. What it comes to goes to `out` at once or in [`EventHandler::collect`].
    fn event(&mut self, event: &Event, out: &mut Batch);
    /// The first piece of an event that is too large to be held: all that is ahead of its message,
    /// and how that begins. True if it is no message, and passes as it is.
    fn passing(&mut self, piece: &Piece, out: &mut Batch) -> bool;
    /// Another piece.
    fn piece(&mut self, piece: &Piece, out: &mut Batch);
    /// The large event has ended.
    fn passed(&mut self, out: &mut Batch);
    /// Appends the bytes that are due now.
    fn collect(&mut self, out: &mut Batch);
    /// Something has come from the server now.
    fn heard(&mut self, _: std::time::Instant) {}
    /// The client reads too slowly, or does no more: then all progress is thinned.
    fn slow(&mut self, slow: bool);
    /// When to collect again if nothing happens before.
    fn timeout(&self) -> Option<std::time::Instant>;
    /// Is woken when others have something for this stream.
    fn listen(&mut self, cx: &mut Context<'_>);
    /// Takes what others have for it.
    fn look_around(&mut self, out: &mut Batch);
    /// The server says nothing more. What the client is told of that goes to `out`.
    fn ended(&mut self, error: Option<&UpstreamError>, out: &mut Batch);
    /// Whether comments may be written yet.
    fn may_comment(&self) -> bool {
        true
    }
    /// Whether the stream is to go on.
    fn goes_on(&self) -> bool {
        true
    }
}

/// What becomes of a piece of a large event once it has been judged: as it is, where it is no message or
/// `observing`; what the judge's filter has for it, where it is one.
pub(crate) fn passed_on<J: EventHandler>(
    judge: &mut J,
    observing: bool,
    fate: &Disposition,
    piece: &Piece,
    out: &mut Batch,
) {
    let is_message = !matches!(fate, Disposition::NotAMessage(_));
    if observing || !is_message {
        out.raw(&piece.raw);
    }
    if is_message {
        judge.collect(out);
    }
}

/// The source of a stream's bytes.
pub(crate) trait Chunks<J>: Send {
    /// The next bytes of events; every other input is handled here and reported to the handler.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        judge: &mut J,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>>;
}

impl<J> Chunks<J> for UpstreamBody {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        _: &mut J,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        self.poll_data(cx)
    }
}

/// How a stream is kept from falling silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    /// A comment is written after this (rule A3).
    pub(crate) keep_alive: Option<Duration>,
    /// A server that says nothing for so long is given up.
    pub(crate) idle: Option<Duration>,
}

impl Silence {
    pub(crate) fn of(route: &Route) -> Self {
        Self { keep_alive: route.keep_alive, idle: route.idle_timeout }
    }
}

/// An event that is too large to be held.
enum LargeEvent {
    /// There is none.
    No,
    /// The event goes through the handler.
    Judged,
    /// The event is forwarded unchanged, and nothing else is written before its end.
    AsItIs,
}

// The body of the response drives the server's connection; there is no task of its own. A task
// would hand over each chunk separately, and each would be written separately; read in place, all
// bytes that have arrived go out in one write. The connection also ends with the response: a call
// may be silent for minutes, and a task would not notice that its client has left.
pub(crate) struct EventStream<J, U> {
    pub(crate) judge: J,
    upstream: U,
    events: Events,
    large: LargeEvent,
    out: Batch,
    timer: Option<Pin<Box<Sleep>>>,
    silence: Silence,
    written: Instant,
    heard: Instant,
    /// When the client was last given something, unless it has asked for more since in vain.
    given: Option<Instant>,
    outlet: WriteState,
    slow_until: Option<Instant>,
    blocked_since: Option<Instant>,
    over: bool,
    /// The reason why the server's stream broke off, until a caller has taken it.
    failure: Option<(&'static str, String)>,
    /// The stream begins with a comment, so that the client has a first byte.
    greets: bool,
}

impl<J: EventHandler, U: Chunks<J>> EventStream<J, U> {
    pub(crate) fn new(judge: J, upstream: U, silence: Silence, outlet: WriteState) -> Self {
        let now = Instant::now();
        Self {
            judge,
            upstream,
            events: Events::new(EVENT_HELD_MAX),
            large: LargeEvent::No,
            out: Batch::default(),
            timer: None,
            silence,
            written: now,
            heard: now,
            given: None,
            outlet,
            slow_until: None,
            blocked_since: None,
            over: false,
            failure: None,
            greets: false,
        }
    }

    /// The client gets a comment at once.
    pub(crate) fn greet(&mut self) {
        self.greets = true;
        self.events.drop_mark();
    }

    /// The stream has a client now.
    pub(crate) fn speak_to(&mut self, outlet: WriteState) {
        self.outlet = outlet;
    }

    fn frame(&mut self, frame: Frame) {
        match frame {
            Frame::Event(event) => self.judge.event(&event, &mut self.out),
            Frame::Start(piece) => {
                let as_it_is = self.judge.passing(&piece, &mut self.out);
                self.large = if as_it_is { LargeEvent::AsItIs } else { LargeEvent::Judged };
            }
            Frame::Piece(piece) => self.judge.piece(&piece, &mut self.out),
            Frame::End => {
                self.large = LargeEvent::No;
                self.judge.passed(&mut self.out);
            }
        }
    }

    /// Collects the bytes that are due now, if anything may be written.
    fn collect(&mut self) {
        if !matches!(self.large, LargeEvent::AsItIs) {
            self.judge.collect(&mut self.out);
        }
        if !self.out.is_empty() {
            // Something may be ahead of all that the server has sent.
            self.events.drop_mark();
        }
        self.over |= !self.is_within() && !self.judge.goes_on();
    }

    /// Whether something of an event has been given out that is not over.
    fn is_within(&self) -> bool {
        !matches!(self.large, LargeEvent::No)
    }

    fn end(&mut self, error: Option<&UpstreamError>) {
        self.failure = error.and_then(|error| Some((error.kind()?, error_chain(error))));
        let within = self.is_within();
        self.large = LargeEvent::No;
        let rest = self.events.finish();
        if !within {
            self.judge.collect(&mut self.out);
        }
        let mut last = Batch::default();
        self.judge.ended(error, &mut last);
        self.judge.collect(&mut last);
        // What is left is no event, but it is the server's; nothing of ours may become a part of it.
        if last.is_empty() || self.events.at_boundary() {
            self.out.raw(&rest.unwrap_or_default());
        } else if within {
            self.out.raw(&Bytes::from_static(b"\n\n"));
        }
        while let Some(bytes) = last.take() {
            self.out.raw(&bytes);
        }
        self.over = true;
    }

    /// Takes the reason why the server's stream has broken off.
    pub(crate) fn failure(&mut self) -> Option<(&'static str, String)> {
        self.failure.take()
    }

    /// Ends the stream in the server's place.
    pub(crate) fn break_off(&mut self, why: &'static str) {
        if !self.over {
            self.end(Some(&UpstreamError::BrokenOff(why)));
        }
    }

    /// Whether what has been given out ends between two events.
    pub(crate) fn at_boundary(&self) -> bool {
        self.events.at_boundary() && !self.is_within()
    }

    /// The stream has a client now, which is kept from falling asleep.
    pub(crate) fn speak_up(&mut self, silence: Silence) {
        self.silence = silence;
        self.written = Instant::now();
    }

    /// Reads until there is enough to write or nothing more to read.
    fn read(&mut self, cx: &mut Context<'_>) {
        while !self.over && !self.out.is_full() {
            if let Some(frame) = self.events.next() {
                self.frame(frame);
                self.over |= !self.judge.goes_on();
                continue;
            }
            // What is due may be all there is room for.
            self.collect();
            if self.over || self.out.is_full() {
                return;
            }
            match self.upstream.poll(cx, &mut self.judge) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(chunk))) => {
                    self.heard = Instant::now();
                    self.judge.heard(self.heard.into_std());
                    self.events.push(chunk);
                }
                Poll::Ready(Some(Err(error))) => self.end(Some(&error)),
                Poll::Ready(None) => self.end(None),
            }
        }
        self.collect();
    }

    /// Notices a client that reads too slowly, and one that does no more (rule G4). That its
    /// connection is full for a moment is nothing unusual.
    fn watch_client(&mut self) {
        let now = Instant::now();
        let late = self.given.take().is_some_and(|since| now >= since + SLOW_AFTER);
        self.blocked_since = match self.blocked_since {
            _ if !self.outlet.is_blocked() => None,
            None => Some(now),
            since => since,
        };
        if late || self.is_stuck(now) {
            if self.slow_until.is_none() {
                self.judge.slow(true);
            }
            self.slow_until = Some(now + SLOW_FOR);
        } else if self.slow_until.is_some_and(|until| now >= until) {
            self.slow_until = None;
            self.judge.slow(false);
        }
    }

    /// Whether the client has taken nothing for a while, or nothing just now and is slow.
    fn is_stuck(&self, now: Instant) -> bool {
        let patience = if self.slow_until.is_some() { Duration::ZERO } else { SLOW_AFTER };
        self.blocked_since.is_some_and(|since| now >= since + patience)
    }

    /// When something happens by itself next.
    fn next_due(&self) -> Option<Instant> {
        let may_write = !matches!(self.large, LargeEvent::AsItIs);
        let judged = self.judge.timeout().filter(|_| may_write).map(Instant::from_std);
        let comment = self.silence.keep_alive.map(|after| self.written + after);
        let idle = self.silence.idle.map(|after| self.heard + after);
        [judged, comment, idle].into_iter().flatten().min()
    }

    /// Waits for what happens by itself; true if it is time.
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        self.next_due().is_some_and(|due| self.is_due_at(due, cx))
    }

    fn is_due_at(&mut self, due: Instant, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        timer.as_mut().poll(cx).is_ready()
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if let Some(after) = self.silence.idle
            && now >= self.heard + after
        {
            return self.end(Some(&UpstreamError::Idle(after)));
        }
        self.collect();
        if let Some(after) = self.silence.keep_alive
            && now >= self.written + after
            && self.out.is_empty()
        {
            // Within an event there is no place for a comment; it would not help either.
            self.written = now;
            if self.events.at_boundary() && self.judge.may_comment() {
                self.out.raw(&Bytes::from_static(sse::COMMENT));
                self.events.drop_mark();
            }
        }
    }
}

impl<J: EventHandler, U: Chunks<J>> BodyProducer for EventStream<J, U> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        if std::mem::take(&mut self.greets) {
            self.out.raw(&Bytes::from_static(sse::COMMENT));
        }
        self.judge.listen(cx);
        loop {
            self.watch_client();
            if !self.over && !self.is_within() {
                self.judge.look_around(&mut self.out);
            }
            if self.is_stuck(Instant::now()) {
                // What there is stays with the server. Who writes to the client does not say when
                // that goes on.
                let retry = Instant::now() + BLOCKED_FOR;
                if !self.is_due_at(retry, cx) {
                    return Poll::Pending;
                }
                continue;
            }
            let was_within = self.is_within();
            self.read(cx);
            if let Some(bytes) = self.out.take() {
                self.written = Instant::now();
                self.given = Some(self.written);
                return Poll::Ready(Some(Ok(bytes)));
            }
            if self.over {
                return Poll::Ready(None);
            }
            if was_within && !self.is_within() {
                // Others may have had to wait for its end.
                continue;
            }
            if !self.is_due(cx) {
                return Poll::Pending;
            }
            self.on_time();
        }
    }
}
