//! The leg of a relay towards the clients of one session: each POST with requests has a stream, and one more stream
//! carries messages that belong to no request.

mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::StatusCode;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};

use super::large::LargeToClient;
use super::listed_tools::ListedTools;
use super::session::{BridgeSession, BridgeSessions, ENDED, SessionCommand, SessionKind};
use crate::gateway::bridge::replay_buffer::{ClientReads, ReplayBuffer};
use crate::gateway::bridge::signals::Broken;
use crate::gateway::route_state::RouteWatch;
use crate::progress::{Fragment, StreamId, StreamKind, StreamPacing, Transmit, TransmitKind};
use crate::protocol::jsonrpc::{Key, Kind, Message, own_error};
use crate::relay::discover_probe::Era;
use crate::relay::{ClientLeg, FromClient, SOLE_STREAM};
use crate::transport::http::in_flight::InFlightGuard;
use crate::transport::http::shutdown::{SHUTTING_DOWN, Shutdown};

/// Time after which a client that reads none of its waiting messages counts as disconnected. Until then the relay does
/// not read from the server.
const STUCK: Duration = Duration::from_secs(60);

/// Limit of the bytes that wait for one client of a shared server. A client that does not read is disconnected at the
/// limit.
const UNREAD_MAX: usize = 32 << 20;

/// The clients of one session.
pub(crate) struct SessionLeg {
    pub(crate) session: Arc<BridgeSession>,
    pub(crate) sessions: Arc<BridgeSessions>,
    pub(crate) commands: mpsc::Receiver<SessionCommand>,
    /// Client messages that the relay has not received yet.
    inputs: VecDeque<FromClient>,
    pub(crate) open: BTreeMap<StreamId, Arc<ReplayBuffer>>,
    /// Streams that have ended for the filter before their requests were answered.
    unanswered: BTreeSet<StreamId>,
    /// Streams with messages that their clients have not taken yet, and the time since when these wait.
    writing: BTreeMap<StreamId, Instant>,
    stuck: Pin<Box<Sleep>>,
    pub(crate) large: BTreeMap<StreamId, LargeToClient>,
    listed_tools: ListedTools,
    /// The id of the last request of a client.
    last_id: Option<Key>,
    /// Number of requests without an answer.
    pub(crate) waiting: usize,
    /// Number of tasks that run, or whose answer waits for the client.
    pub(crate) tasks: usize,
    pub(crate) call: Option<InFlightGuard>,
    /// The settings of the session's route.
    pub(crate) watch: RouteWatch,
    /// The time of the next check whether the session is still used.
    pub(crate) timer: Pin<Box<Sleep>>,
    /// The time at which an abandoned session ends.
    pub(crate) abandoned: Option<Pin<Box<Sleep>>>,
    /// Whether tasks of the session are open.
    pub(crate) has_tasks: bool,
    ending: Pin<Box<OwnedNotified>>,
    /// What is known about the revisions of the shared server.
    pub(crate) era: Option<Arc<Era>>,
    stopped: bool,
}

impl SessionLeg {
    /// The leg of a session whose clients send `commands`. `pacing` applies to the stream for messages that belong to
    /// no request.
    pub(crate) fn new(
        session: Arc<BridgeSession>,
        sessions: Arc<BridgeSessions>,
        commands: mpsc::Receiver<SessionCommand>,
        pacing: StreamPacing,
        era: Option<Arc<Era>>,
        watch: RouteWatch,
        ending: &Shutdown,
    ) -> Self {
        // Registered before the flag is read, so that an end between the two is not missed.
        let notified = Box::pin(Arc::clone(ending.shard()).notified_owned());
        if ending.has_ended() {
            session.end(shutting_down());
        }
        let session_buffer = Arc::clone(&session.session_buffer);
        session_buffer.expect([]);
        Self {
            sessions,
            commands,
            inputs: VecDeque::from([FromClient::Opened(SOLE_STREAM, StreamKind::Shared, pacing)]),
            open: BTreeMap::from([(SOLE_STREAM, session_buffer)]),
            unanswered: BTreeSet::new(),
            writing: BTreeMap::new(),
            stuck: Box::pin(sleep_until(Instant::now() + STUCK)),
            large: BTreeMap::new(),
            listed_tools: ListedTools::default(),
            last_id: None,
            waiting: 0,
            tasks: 0,
            call: None,
            timer: Box::pin(sleep_until(
                Instant::now() + Self::idle(watch.state()).unwrap_or_default(),
            )),
            abandoned: None,
            has_tasks: false,
            watch,
            ending: notified,
            era,
            stopped: false,
            session,
        }
    }

    /// Returns the client event of a command; `None` if it causes none.
    fn take(&mut self, command: SessionCommand) -> Option<FromClient> {
        self.session.mark_heard();
        match command {
            // The client disconnected before the relay read the message, which cancels the request (2026-07-28).
            SessionCommand::Ask(buffer, ..) if buffer.is_given_up() => return None,
            SessionCommand::Ask(buffer, message, headers) => {
                let stream = self.opened(buffer, &message);
                self.inputs.push_back(FromClient::Message(stream, message, headers));
            }
            SessionCommand::Tell(message, headers) => {
                return Some(self.receive_one_way(message, headers));
            }
            SessionCommand::Start(buffer, piece, headers) => {
                return Some(FromClient::Start(buffer.id, piece, headers));
            }
            SessionCommand::Piece(piece) => return Some(FromClient::Piece(piece)),
            SessionCommand::End(buffer, scan) => {
                let request = scan.id().filter(|_| scan.kind() == Kind::Request);
                // Key and text: answers are compared by the key, and are written with the client's text.
                let request: Vec<_> =
                    request.map(|key| (key.clone(), key.to_json())).into_iter().collect();
                if self.session.kind == SessionKind::HttpSse {
                    self.begin_waiting(request.len());
                    buffer.expect(request);
                } else {
                    self.enter(buffer, request);
                }
                self.inputs.push_back(FromClient::End);
            }
        }
        // The event that opens the stream is first in the queue, before the message.
        self.inputs.pop_front()
    }

    /// Forgets which streams have waiting messages, so that the relay no longer waits for their clients.
    pub(crate) fn forget_writing(&mut self) {
        self.writing.clear();
    }

    fn close(&mut self, stream: StreamId) {
        if let Some(buffer) = self.open.remove(&stream) {
            buffer.end();
        }
    }

    /// Returns the stream on which a message for `stream` is written; `None` if the client does not take the message.
    fn place_of(&self, stream: StreamId, kind: &TransmitKind) -> Option<StreamId> {
        if let TransmitKind::Answer(id) = kind {
            // The filter may not know the request, but a stream may still wait for its id.
            let id = id.as_ref().filter(|_| stream == SOLE_STREAM);
            return Some(id.and_then(|id| self.stream_of_request(id)).unwrap_or(stream));
        }
        // A stream that has ended, or takes only answers, cannot carry the message.
        let refuses =
            self.open.get(&stream).is_none_or(|buffer| buffer.reads == ClientReads::Answers);
        match kind {
            _ if !refuses => Some(stream),
            TransmitKind::Batch(..) => Some(stream),
            TransmitKind::Progress => None,
            _ => Some(SOLE_STREAM),
        }
    }

    /// Notes that a stream got bytes. If no client is connected to take them, they count as written.
    pub(crate) fn note_written(&mut self, stream: StreamId, attached: bool) {
        self.writing.entry(stream).or_insert_with(Instant::now);
        if !attached {
            self.session.signals.mark_drained(stream);
        }
    }

    /// Answers, with an error, requests of the server that no client has read and that are no longer kept.
    pub(crate) fn refuse_unread(&mut self, stream: StreamId) {
        let Some(buffer) = self.open.get(&stream) else { return };
        for id in buffer.take_refused() {
            self.watch.state().shared.counts.count_unread_request();
            let error = Message::parse(own_error(&id, "no client reads the request", None));
            self.inputs.push_back(FromClient::Message(SOLE_STREAM, error, None));
        }
    }

    /// Ready with a stream whose client has read nothing for too long. The stream continues without the client.
    fn poll_stuck(&mut self, cx: &mut Context<'_>) -> Poll<StreamId> {
        loop {
            let oldest = self.writing.iter().min_by_key(|(_, since)| **since);
            let Some((stream, since)) = oldest.map(|(stream, since)| (*stream, *since)) else {
                return Poll::Pending;
            };
            if since.elapsed() >= STUCK {
                tracing::info!(stream = stream.0, "a client does not read; its stream is closed");
                self.writing.remove(&stream);
                if let Some(buffer) = self.open.get(&stream) {
                    buffer.evict();
                }
                return Poll::Ready(stream);
            }
            if self.stuck.deadline() < since + STUCK {
                self.stuck.as_mut().reset(since + STUCK);
            }
            ready!(self.stuck.as_mut().poll(cx));
        }
    }

    /// Handles the disconnect of a stream's client, which also cancels its requests.
    fn leave(&mut self, stream: StreamId) -> Option<FromClient> {
        let buffer = self.open.remove(&stream)?;
        buffer.end();
        self.end_waiting(buffer.open());
        self.listed_tools.leave(stream);
        self.writing.remove(&stream);
        self.large.remove(&stream);
        self.unanswered.remove(&stream);
        Some(FromClient::Closed(stream, true))
    }

    /// Disconnects a client that shares a server if too much waits for it, so that it does not delay the others.
    pub(crate) fn cut_off(&self, stream: StreamId) {
        let buffer = self.open.get(&stream).filter(|buffer| buffer.cancels());
        if let Some(buffer) = buffer.filter(|buffer| buffer.unread() > UNREAD_MAX) {
            tracing::warn!(stream = stream.0, "a client reads too slowly; its stream is closed");
            buffer.evict();
        }
    }

    /// Ends everything that is still open.
    fn end_all(&mut self, why: &Broken) {
        self.writing.clear();
        self.unanswered.clear();
        for buffer in std::mem::take(&mut self.open).into_values() {
            buffer.break_off(why);
        }
        (self.waiting, self.tasks) = (0, 0);
        self.call = None;
    }
}

fn shutting_down() -> Broken {
    Broken { status: StatusCode::SERVICE_UNAVAILABLE, why: SHUTTING_DOWN }
}

impl ClientLeg for SessionLeg {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<FromClient> {
        if let Some(inputs) = self.inputs.pop_front() {
            return Poll::Ready(inputs);
        }
        self.session.signals.register(cx);
        if self.ending.poll_unpin(cx).is_ready() {
            self.session.end(shutting_down());
        }
        if self.is_of_no_use() {
            self.session.end(ENDED);
        }
        if let Some(end) = self.session.signals.ended() {
            let is_ours = end.status != ENDED.status;
            return Poll::Ready(if is_ours { FromClient::Over } else { FromClient::Gone });
        }
        // New settings are returned before the next message, to which they apply.
        if let Some(settings) = self.changed_settings() {
            return Poll::Ready(settings);
        }
        while let Some(stream) = self.session.signals.next_disconnected() {
            if let Some(left) = self.leave(stream) {
                return Poll::Ready(left);
            }
        }
        if self.is_route_retired() && self.hand_over() {
            return Poll::Ready(FromClient::Gone);
        }
        while let Poll::Ready(command) = self.commands.poll_recv(cx) {
            let Some(command) = command else { return Poll::Ready(FromClient::Gone) };
            if let Some(inputs) = self.take(command) {
                return Poll::Ready(inputs);
            }
        }
        // The session ends only after all messages that have arrived are handled.
        if self.is_route_retired() {
            self.session.end(ENDED);
            return Poll::Ready(FromClient::Gone);
        }
        if self.poll_abandoned(cx).is_ready() {
            tracing::info!("the client has left and the session ends");
        } else {
            ready!(self.poll_idle(cx));
            tracing::info!("the session is idle and ends");
        }
        self.session.end(ENDED);
        Poll::Ready(FromClient::Gone)
    }

    fn try_receive(&mut self) -> Option<FromClient> {
        if let Some(inputs) = self.inputs.pop_front() {
            return Some(inputs);
        }
        if let Some(settings) = self.changed_settings() {
            return Some(settings);
        }
        if !self.session.was_heard() && self.is_route_retired() {
            // Left in the queue: the first request must go to the new server.
            return None;
        }
        let command = self.commands.try_recv().ok()?;
        self.take(command)
    }

    fn is_ready(&self, stream: StreamId) -> bool {
        self.open.contains_key(&stream) && !self.writing.contains_key(&stream)
    }

    fn is_full(&self, stream: StreamId) -> bool {
        self.open.get(&stream).is_some_and(|buffer| buffer.is_full())
    }

    fn send(&mut self, stream: StreamId, Transmit { kind, payload, part }: Transmit) {
        match part {
            Fragment::Broken => {
                let piece = payload.to_bytes();
                if !piece.is_empty() {
                    self.piece(stream, &piece, Fragment::Piece);
                }
                self.break_off(stream);
            }
            Fragment::Piece | Fragment::End => {
                let piece = payload.to_bytes();
                if part == Fragment::End || !piece.is_empty() {
                    self.piece(stream, &piece, part);
                }
            }
            Fragment::Whole => {
                self.listed_tools.hear(&self.session, stream, &kind, &payload);
                let to = self.place_of(stream, &kind);
                // The filter waits until its message is written to `stream`, but the message goes to another stream.
                if to != Some(stream) {
                    self.note_written(stream, false);
                }
                let Some(to) = to else { return };
                let buffer = self.open.get(&to);
                let attached = buffer.is_some_and(|buffer| buffer.put(&kind, &payload.to_bytes()));
                self.note_written(to, attached);
                // Progress and notifications need no response, so the server gets no error if they are dropped.
                if !matches!(kind, TransmitKind::Progress | TransmitKind::Other) {
                    self.refuse_unread(to);
                }
                for id in kind.answers() {
                    self.settle(self.stream_of_answer(to, id), id);
                }
                self.cut_off(to);
            }
        }
    }

    fn send_raw(&mut self, _: Bytes) {}

    fn finish(&mut self, stream: StreamId) {
        let cancelled = self.open.get(&stream).map_or(0, |buffer| buffer.settle_cancelled());
        self.end_waiting(cancelled);
        if self.open.get(&stream).is_some_and(|buffer| buffer.open() > 0) {
            // The answer will come on the stream for messages that belong to no request, so the requests stay open.
            self.unanswered.insert(stream);
        } else {
            self.close(stream);
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<(StreamId, bool)> {
        self.session.signals.register(cx);
        while let Some(stream) = self.session.signals.next_drained() {
            // If more messages have come in the meantime, the client must take them first; the buffer signals again.
            let more = self.open.get(&stream).is_some_and(|buffer| buffer.is_unread());
            if !more && self.writing.remove(&stream).is_some() {
                return Poll::Ready((stream, true));
            }
        }
        self.poll_stuck(cx).map(|stream| (stream, true))
    }

    fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    fn is_behind(&self) -> bool {
        // Always false: messages that wait for streams stay in the filter, which reports them itself.
        false
    }

    fn stop_reading(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            self.sessions.forget(&self.session.id);
        }
        self.inputs.clear();
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let SessionCommand::Ask(buffer, ..) | SessionCommand::End(buffer, _) = command {
                buffer.break_off(&ENDED);
            }
        }
    }

    fn discard(&mut self) {
        let why = self.session.signals.ended().unwrap_or(ENDED);
        self.end_all(&why);
    }

    fn is_slow(&self) -> bool {
        // On a shared server, one slow client must not reduce the progress that the others get.
        self.session.kind != SessionKind::Shared && self.session.signals.is_slow()
    }

    fn set_tasks(&mut self, own: usize, is_open: bool) {
        self.has_tasks = is_open;
        if own != std::mem::replace(&mut self.tasks, own) {
            self.count_work();
        }
    }

    fn are_strangers(&self) -> bool {
        self.session.kind == SessionKind::Shared
    }

    fn end(&mut self) {
        self.end_all(&ENDED);
    }
}

/// Ends every open stream, even if the relay panicked, so that no response hangs.
impl Drop for SessionLeg {
    fn drop(&mut self) {
        self.stop_reading();
        self.end_all(&Broken { status: StatusCode::BAD_GATEWAY, why: "the session broke off" });
    }
}
