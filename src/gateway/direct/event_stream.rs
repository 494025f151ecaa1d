//! A response of events: reads the server's events, passes each to its handler, and writes the events that are due when
//! the client reads.
//!
//! The stream has no task and no queue of its own. Each read of the client drives the server's connection, the filter
//! and the timers. Messages that a slow client has not read stay with the server, and newer progress replaces older
//! progress.

use std::ops::Range;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::config::routes::Route;
use crate::observe::error_chain::error_chain;
use crate::progress::input::Input;
use crate::progress::{ArrivedMessage, Disposition, FastPath, Origin};
use crate::protocol::sse;
use crate::protocol::sse::{Events, Piece, SseEvent, SseFrame};
use crate::relay::filter_guard::FilterGuard;
use crate::transport::clock::now;
use crate::transport::http::body::{Batch, BodyProducer};
use crate::transport::http::client::UpstreamError;
use crate::transport::http::client_pacing::ClientPacing;
use crate::transport::http::inflate::PlainBody;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::event_message::{UNENDED_WAIT, has_whole_message, text_of};

/// Limit of the bytes of an event that is held whole so that a fault in it can be repaired. A longer event is forwarded
/// in pieces.
const EVENT_HELD_MAX: usize = 1 << 20;

/// Limit of the time for which the end of a server's stream is held back, if it cannot be understood yet.
const END_HELD_MAX: Duration = Duration::from_secs(10);

/// The handler of a stream's events.
pub(crate) trait EventHandler: Send {
    /// Whether [`EventHandler::take_fast`] takes any events.
    fn takes_fast(&self) -> bool {
        false
    }
    /// Takes a message that need not wait for other messages, and whose event has no other fields.
    fn take_fast(&mut self, _: ArrivedMessage<'_>) -> FastPath {
        FastPath::NotTaken
    }
    /// Handles an event that [`EventHandler::take_fast`] has not taken. The bytes for the client are written to `out`
    /// now, or later in [`EventHandler::collect`].
    fn event(&mut self, event: &SseEvent, out: &mut Batch);
    /// Returns where the stream's messages come from, for its filter.
    fn origin(&self) -> Origin;
    /// Calls `question` with the filter of the stream.
    fn with_filter<T>(&mut self, question: impl FnOnce(&mut FilterGuard) -> T) -> T;
    /// Whether the server's bytes are forwarded unchanged, so that the filter only observes them.
    fn observes(&self) -> bool;
    /// Whether large events are not shown to the filter.
    fn skips_large(&self) -> bool {
        false
    }
    /// Takes the first piece of an event that is too large for memory, after all earlier messages. Returns `true` if
    /// the event is not a message, and is forwarded unchanged.
    fn begin_large(&mut self, piece: &Piece, out: &mut Batch) -> bool {
        self.collect(out);
        self.pass_piece(piece, out, FilterGuard::begin_large)
    }
    /// Takes a further piece of the large event.
    fn piece(&mut self, piece: &Piece, out: &mut Batch) {
        self.pass_piece(piece, out, FilterGuard::large_piece);
    }
    /// Shows a piece of a large event to the filter. Returns `true` if the piece is not part of a
    /// message and is forwarded unchanged; otherwise the filter decides.
    fn pass_piece(&mut self, piece: &Piece, out: &mut Batch, show: ShowPiece) -> bool {
        let (origin, text, raw) = (self.origin(), text_of(piece), piece.raw.clone());
        let is_message = !self.skips_large() && {
            let fate = self.with_filter(|filter| show(filter, now(), origin, raw, text));
            !matches!(fate, Disposition::NotAMessage(_))
        };
        if !is_message || self.observes() {
            out.raw(&piece.raw);
        }
        if is_message {
            self.collect(out);
        }
        !is_message
    }
    /// Notes that the large event has ended.
    fn end_large(&mut self, out: &mut Batch) {
        let origin = self.origin();
        self.with_filter(|filter| filter.finish_large(now(), origin, None));
        self.collect(out);
    }
    /// Appends to `out` the bytes that are due now.
    fn collect(&mut self, out: &mut Batch);
    /// Appends to `out` the bytes that are due at this time, which is about now.
    fn collect_at(&mut self, _: std::time::Instant, out: &mut Batch) {
        self.collect(out);
    }
    /// Notes that bytes from the server arrived at this time.
    fn last_read(&mut self, _: std::time::Instant) {}
    /// Notes that the client has become slow, or is fast again. A slow client gets less progress of all calls.
    fn slow(&mut self, slow: bool) {
        self.with_filter(|filter| filter.apply(now(), Input::SetClientSlow(slow)));
    }
    /// Returns the time at which [`EventHandler::collect`] is next needed, if nothing arrives before.
    fn timeout(&self) -> Option<std::time::Instant>;
    /// Registers the task to wake when another filter puts a message into the mailbox of this stream.
    fn listen(&mut self, cx: &mut Context<'_>);
    /// Takes the messages of other filters from the mailbox of this stream.
    fn drain_mailbox(&mut self, out: &mut Batch);
    /// Notes that the server's stream has ended. An error for the client goes to `out`.
    fn ended(&mut self, error: Option<&UpstreamError>, out: &mut Batch);
    /// Whether comments may be written yet.
    fn may_comment(&self) -> bool {
        true
    }
    /// Whether the end of the server's stream is held back, because it cannot be understood yet.
    fn holds_end(&self) -> bool {
        false
    }
    /// Whether the stream continues.
    fn is_open(&self) -> bool {
        true
    }
}

/// Shows the filter a piece of a large event. The range is the part of the bytes that is text of the message.
type ShowPiece =
    fn(&mut FilterGuard, std::time::Instant, Origin, Bytes, Range<usize>) -> Disposition;

/// The source of a stream's bytes.
pub(crate) trait Chunks<J>: Send {
    /// Ready with the next bytes of events. Any other input is handled inside and reported to the handler.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        handler: &mut J,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>>;
}

impl<J> Chunks<J> for PlainBody {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        _: &mut J,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        self.poll_data(cx)
    }
}

/// What happens after a time of silence on a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    /// The silence after which a comment is written.
    pub(crate) keep_alive: Option<Duration>,
    /// The silence after which the server's response is given up.
    pub(crate) idle: Option<Duration>,
}

impl Silence {
    pub(crate) fn of(route: &Route) -> Self {
        Self { keep_alive: route.keep_alive, idle: route.idle_timeout }
    }
}

/// An event that is too large for memory.
enum LargeEvent {
    /// No large event is being read.
    No,
    /// The event goes through the handler.
    Judged,
    /// The event is forwarded unchanged, and nothing else is written before its end.
    AsItIs,
}

// The body of the response drives the server's connection, without a task. A task would pass on each chunk separately,
// and each chunk would be written separately. Here all bytes that have arrived are written together. The connection
// also ends with the response: a call may be silent for minutes, and a task would not notice that its client has
// disconnected.
pub(crate) struct EventStream<J, U> {
    pub(crate) handler: J,
    upstream: U,
    events: Events,
    large: LargeEvent,
    out: Batch,
    pub(crate) pacing: ClientPacing,
    /// The silence after which the server's response is given up.
    idle: Option<Duration>,
    last_read: Instant,
    over: bool,
    /// Set when the server's stream has ended: the time at which this end is handled, at the latest.
    ends: Option<Instant>,
    /// Whether bytes were read since the last search for an event whose blank line is missing.
    has_read: bool,
    /// The time at which an event whose blank line is missing is taken without it.
    unended: Option<Instant>,
    /// The reason why the server's stream broke off, until a caller has taken it.
    failure: Option<(&'static str, String)>,
    /// Whether the stream begins with a comment, so that the client gets a first byte.
    has_greeting: bool,
}

impl<J: EventHandler, U: Chunks<J>> EventStream<J, U> {
    pub(crate) fn new(handler: J, upstream: U, silence: Silence, write_state: WriteState) -> Self {
        Self {
            handler,
            upstream,
            events: Events::new(EVENT_HELD_MAX),
            large: LargeEvent::No,
            out: Batch::default(),
            pacing: ClientPacing::new(write_state, silence.keep_alive),
            idle: silence.idle,
            last_read: Instant::now(),
            over: false,
            ends: None,
            has_read: false,
            unended: None,
            failure: None,
            has_greeting: false,
        }
    }

    /// Sends the client a comment before everything else.
    pub(crate) fn send_comment_first(&mut self) {
        self.has_greeting = true;
        self.events.drop_mark();
    }

    /// Sets the client that reads the stream now, and the silence after which it gets a comment.
    pub(crate) fn set_client(&mut self, write_state: WriteState, silence: Silence) {
        self.pacing.set_client(write_state, silence.keep_alive);
        self.idle = silence.idle;
    }

    /// Gives out consecutive events whose messages need not wait for others, as one unchanged part of the input.
    /// Returns true if the next event must still be taken.
    fn pass_run(&mut self) -> bool {
        let (mut from, mut at) = (0, 0);
        let mut is_refused = !self.handler.takes_fast();
        while !is_refused && self.out.has_room_for(at - from) {
            let Some(block) = self.events.peek(at) else { break };
            let (frame, source) = (block.raw, self.events.unread());
            let arrived = block.sole_message().map(|text| ArrivedMessage { text, frame, source });
            let fate = arrived.map(|arrived| self.handler.take_fast(arrived));
            let fate = fate.unwrap_or(FastPath::NotTaken);
            is_refused = fate == FastPath::NotTaken;
            let end = if is_refused { at } else { at + frame.len() };
            if fate != FastPath::Unchanged {
                self.out.copy(&source[from..at]);
                from = end;
            }
            if fate == FastPath::Rewritten {
                self.handler.with_filter(|filter| self.out.rewritten(frame, filter.rewritten()));
            }
            at = end;
        }
        self.out.copy(&self.events.unread()[from..at]);
        self.events.skip(at);
        is_refused
    }

    /// Takes an event that arrived in several pieces, if its message need not wait for others.
    fn take_fast(&mut self, event: &SseEvent) -> bool {
        let (frame, source) = (&event.raw[..], &event.raw);
        let Some(text) = event.view().sole_message() else { return false };
        let fate = self.handler.take_fast(ArrivedMessage { text, frame, source });
        match fate {
            FastPath::NotTaken => return false,
            FastPath::Unchanged => self.out.raw(&event.raw),
            FastPath::Rewritten => {
                self.handler.with_filter(|filter| self.out.rewritten(frame, filter.rewritten()));
            }
            FastPath::Kept => {}
        }
        true
    }

    fn frame(&mut self, frame: SseFrame) {
        match frame {
            SseFrame::Event(event) => self.handler.event(&event, &mut self.out),
            SseFrame::Start(piece) => {
                let as_it_is = self.handler.begin_large(&piece, &mut self.out);
                self.large = if as_it_is { LargeEvent::AsItIs } else { LargeEvent::Judged };
            }
            SseFrame::Piece(piece) => self.handler.piece(&piece, &mut self.out),
            SseFrame::End => {
                self.large = LargeEvent::No;
                self.handler.end_large(&mut self.out);
            }
        }
    }

    /// Collects the bytes that are due at this time, if anything may be written.
    fn collect(&mut self, at: Instant) {
        if !matches!(self.large, LargeEvent::AsItIs) {
            self.handler.collect_at(at.into_std(), &mut self.out);
        }
        if !self.out.is_empty() {
            // Milepost's own bytes may be the first on the stream; a byte order mark of the server, which is only
            // allowed at the beginning, is then dropped.
            self.events.drop_mark();
        }
        self.over |= !self.is_within() && !self.handler.is_open();
    }

    /// Whether a large event has been given out only in part.
    fn is_within(&self) -> bool {
        !matches!(self.large, LargeEvent::No)
    }

    fn end(&mut self, error: Option<&UpstreamError>) {
        self.failure = error.and_then(|error| Some((error.kind()?, error_chain(error))));
        let within = self.is_within();
        self.large = LargeEvent::No;
        if error.is_none() && !within {
            self.take_unended();
        }
        let rest = self.events.finish();
        if !within {
            self.handler.collect(&mut self.out);
        }
        let mut last = Batch::default();
        self.handler.ended(error, &mut last);
        self.handler.collect(&mut last);
        // The rest is an incomplete event of the server, so Milepost's own messages must be kept apart from it.
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

    /// Returns the event at the end that lacks only its blank line, if the settings allow to complete it.
    fn unended_event(&mut self) -> Option<SseEvent> {
        let event = self.events.unfinished_event().filter(has_whole_message)?;
        let origin = self.handler.origin();
        let is_completed = !self.handler.observes()
            && self.handler.with_filter(|filter| filter.repairs_event_name(origin));
        is_completed.then_some(event)
    }

    /// Takes the event at the end that lacks only its blank line.
    fn take_unended(&mut self) {
        if let Some(event) = self.unended_event() {
            self.events.drop_rest();
            self.handler.event(&event, &mut self.out);
        }
    }

    /// Takes the reason why the server's stream has broken off.
    pub(crate) fn failure(&mut self) -> Option<(&'static str, String)> {
        self.failure.take()
    }

    /// Ends the stream as if the server had broken it off.
    pub(crate) fn break_off(&mut self, why: &'static str) {
        if !self.over {
            self.end(Some(&UpstreamError::BrokenOff(why)));
        }
    }

    /// Whether the bytes given out so far end between two events.
    pub(crate) fn at_boundary(&self) -> bool {
        self.events.at_boundary() && !self.is_within()
    }

    /// Reads until there is enough to write or nothing more to read.
    fn read(&mut self, cx: &mut Context<'_>) {
        // The clock is read once for all work of this poll, which takes less time than the resolution of a timer.
        let at = Instant::now();
        while !self.over && !self.out.is_full() {
            let is_refused = self.pass_run();
            if self.out.is_full() {
                break;
            }
            if let Some(frame) = self.events.next() {
                match frame {
                    SseFrame::Event(event) if !is_refused && self.take_fast(&event) => {}
                    frame => {
                        self.frame(frame);
                        // One read may bring several chunks. Collect now, so that a report that is due is not replaced
                        // by a later report.
                        self.collect(at);
                    }
                }
                self.over |= !self.handler.is_open();
                continue;
            }
            // The messages that are due may fill the buffer.
            self.collect(at);
            if self.over || self.out.is_full() {
                return;
            }
            if let Some(until) = self.ends {
                if self.handler.holds_end() && at < until {
                    break;
                }
                self.end(None);
                continue;
            }
            match self.upstream.poll(cx, &mut self.handler) {
                Poll::Pending => {
                    if std::mem::take(&mut self.has_read) && self.unended_event().is_some() {
                        self.unended = Some(self.last_read + UNENDED_WAIT);
                    }
                    if self.unended.take_if(|due| *due <= at).is_none() {
                        break;
                    }
                    self.take_unended();
                }
                Poll::Ready(Some(Ok(chunk))) => {
                    (self.has_read, self.unended) = (true, None);
                    self.last_read = at;
                    self.handler.last_read(at.into_std());
                    self.events.push(chunk);
                }
                Poll::Ready(Some(Err(error))) => self.end(Some(&error)),
                Poll::Ready(None) => self.ends = Some(at + END_HELD_MAX),
            }
        }
        self.collect(at);
    }

    /// Returns the next time at which something is due without new input.
    fn next_due(&self) -> Option<Instant> {
        let may_write = !matches!(self.large, LargeEvent::AsItIs);
        let handler_due = self.handler.timeout().filter(|_| may_write).map(Instant::from_std);
        let idle = self.idle.map(|after| self.last_read + after);
        let own = [handler_due, self.pacing.comment_due(), idle, self.ends, self.unended];
        own.into_iter().flatten().min()
    }

    /// Waits for the next due time; returns true if it has come.
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        self.next_due().is_some_and(|due| self.pacing.is_due(due, cx))
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if let Some(after) = self.idle
            && now >= self.last_read + after
        {
            return self.end(Some(&UpstreamError::Idle(after)));
        }
        self.collect(now);
        if self.pacing.comment_due().is_some_and(|due| now >= due) && self.out.is_empty() {
            // A comment cannot be written within an event.
            self.pacing.comment();
            if self.events.at_boundary() && self.handler.may_comment() {
                self.out.raw(&Bytes::from_static(sse::COMMENT));
                self.events.drop_mark();
            }
        }
    }
}

impl<J: EventHandler, U: Chunks<J>> BodyProducer for EventStream<J, U> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        if std::mem::take(&mut self.has_greeting) {
            self.out.raw(&Bytes::from_static(sse::COMMENT));
        }
        self.handler.listen(cx);
        loop {
            if self.pacing.watch() {
                self.handler.slow(self.pacing.is_slow());
            }
            if !self.over && !self.is_within() {
                self.handler.drain_mailbox(&mut self.out);
            }
            if self.pacing.is_stuck() {
                // Unread bytes of the server stay in its connection.
                if !self.pacing.is_blocked_over(cx) {
                    return Poll::Pending;
                }
                continue;
            }
            let was_within = self.is_within();
            self.read(cx);
            if let Some(bytes) = self.out.take() {
                self.pacing.give();
                return Poll::Ready(Some(Ok(bytes)));
            }
            if self.over {
                return Poll::Ready(None);
            }
            if was_within && !self.is_within() {
                // Messages of other filters may have waited for the end of the large event.
                continue;
            }
            if !self.is_due(cx) {
                return Poll::Pending;
            }
            self.on_time();
        }
    }
}
