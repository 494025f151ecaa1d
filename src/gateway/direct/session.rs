//! The state that all requests of one session share: the stream of each request's progress, the tasks, and the
//! revision. All other state is kept for each POST (`exchange`).

mod cancel;
mod held;
mod leave;
mod questions;
mod resume;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::gateway::direct::claim::ClaimSender;
use crate::gateway::direct::control::ControlSender;
use crate::gateway::direct::mailbox::{CancelNotice, MAILBOX_LIMIT, Mail, Mailbox};
use crate::gateway::direct::written_ids::WrittenIds;
use crate::gateway::limit_notices::tell_of_dropped_mail;
use crate::gateway::observers::Observers;
use crate::observe::events::{FilterId, Scope};
use crate::observe::log::Connection;
use crate::observe::metrics::RouteCounts;
use crate::progress::clients::Client;
use crate::progress::input::{FilterScope, Input};
use crate::progress::{
    Filter, FilterEvent, Origin, Payload, Policy, Reason, RequestMembers, StreamId, StreamKind,
    StreamPacing, Transmit, Verdict,
};
use crate::protocol::jsonrpc::{Framing, Key, Kind, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::sse::SseEvent;
use crate::relay::active_tokens::{TokenLease, TokenScope};
use crate::relay::filter_guard::FilterGuard;
use crate::transport::clock::now;
use crate::transport::http::body::Batch;
use crate::transport::mcp_http::event_ids::has_id_or_retry;
use crate::transport::mcp_http::event_message::is_part;
use crate::transport::mcp_http::request_body::{cancels_apart, cancels_in};

/// Limit of the messages of listening streams that wait for their verdict because their order matters.
const WAITING_MAX: usize = 256;

/// Whether Milepost has seen the beginning of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionBeginning {
    Seen,
    Missed,
}

/// One session, and the shared state of its streams.
pub(crate) struct Session {
    shared: Mutex<SessionState>,
    /// Has its own lock, so that streams that note an id do not wait for the filter.
    ids: Mutex<WrittenIds>,
    /// The scope of the session's tokens among all sessions of the route.
    pub(crate) scope: TokenScope,
    /// The id of the session's filter, for observers.
    pub(crate) filter_id: Option<FilterId>,
}

struct SessionState {
    filter: FilterGuard,
    log: Connection,
    /// The mailboxes of open responses and listening streams.
    streams: BTreeMap<StreamId, Arc<Mailbox>>,
    listening: BTreeSet<StreamId>,
    /// Streams on which clients have resumed an earlier stream, each with that stream's mailbox if it was still open.
    resumed: BTreeMap<StreamId, Option<Arc<Mailbox>>>,
    next: u64,
    began_elsewhere: bool,
    /// Leases of the tokens of calls whose response has ended without an answer.
    leases: Vec<TokenLease>,
    /// The number of requests that continue as tasks.
    tasks: usize,
    used: Instant,
    /// The caller that the server has accepted last. `refused`: the caller that it has refused last.
    proven: Option<u64>,
    refused: Option<u64>,
    /// The caller for whom a stream is held, and the channel to the stream's task.
    held: Option<(u64, ClaimSender)>,
    /// Whether the held stream was closed because the client did not use the session for a long time.
    let_go: bool,
    /// The time of the client's last message, or of the end of its last response.
    spoken: Instant,
    counts: Arc<RouteCounts>,
    /// Messages of listening streams that wait for a verdict, by number.
    waiting: BTreeMap<u64, StreamId>,
    /// Messages that have a verdict: the stream and number of each, and whether it was withheld.
    judged: Vec<(StreamId, u64, bool)>,
    /// Sends operators' cancellations to the server, in the way of the last request that was left open.
    control: Option<ControlSender>,
}

/// The decision about a message on one stream that may belong to another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The message was moved to another stream.
    Moved,
    /// The message is forwarded unchanged on its own stream.
    Passes,
    /// The message must not be written on this stream or any other.
    OutOfPlace(Reason),
    /// No other stream knows the message.
    Unknown,
}

/// The decision about a message on a listening stream of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenDelivery {
    /// The message was moved to another stream.
    Moved,
    /// The message is forwarded unchanged.
    Passes,
    /// The filter handles the message under this number: see [`Session::collect`].
    Taken(u64),
}

/// A stream's membership in a session, which ends on drop.
pub(crate) struct SessionStream {
    pub(crate) session: Arc<Session>,
    pub(crate) stream: StreamId,
    /// The kind of the stream; for a resumed stream, that of the stream that it continues.
    pub(crate) kind: StreamKind,
    pub(crate) mailbox: Arc<Mailbox>,
    /// The client of the session.
    pub(crate) client: Option<Arc<Client>>,
}

impl Session {
    /// A session.
    pub(crate) fn new(
        policy: &Arc<Policy>,
        beginning: SessionBeginning,
        audience: &Observers,
        beside: Option<FilterId>,
        scope: TokenScope,
    ) -> Self {
        let filter = Filter::of_session(Arc::clone(policy));
        let mut filter = FilterGuard::new(filter, Arc::clone(policy), StreamId::NOWHERE);
        filter.set_emitter(audience.emitter(beside, Scope::Session, policy));
        filter.apply(now(), Input::Begin(FilterScope::Session));
        if beginning == SessionBeginning::Missed {
            filter.apply(now(), Input::MarkIncomplete);
        }
        let filter_id = filter.filter_id();
        let shared = SessionState {
            filter,
            log: audience.log(),
            streams: BTreeMap::new(),
            listening: BTreeSet::new(),
            resumed: BTreeMap::new(),
            next: 0,
            began_elsewhere: beginning == SessionBeginning::Missed,
            leases: Vec::new(),
            tasks: 0,
            used: Instant::now(),
            proven: None,
            refused: None,
            held: None,
            let_go: false,
            spoken: Instant::now(),
            counts: Arc::clone(&audience.counts),
            waiting: BTreeMap::new(),
            judged: Vec::new(),
            control: None,
        };
        Self { shared: Mutex::new(shared), ids: Mutex::default(), scope, filter_id }
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        // A poisoned lock is used, because panics stay inside the filter's guard and leave no other state inconsistent.
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.used = Instant::now();
        shared
    }

    pub(crate) fn revision(&self) -> Option<Revision> {
        self.lock().filter.try_with(|filter| filter.calls().handshake().revision()).flatten()
    }

    /// Whether the server has accepted a caller in the session, and has not refused this one last. The same client is
    /// another caller after its token is renewed.
    pub(crate) fn is_proven(&self, caller: u64) -> bool {
        let shared = self.lock();
        shared.proven.is_some() && shared.refused != Some(caller)
    }

    /// Whether the server has last accepted another caller than this one.
    pub(crate) fn has_served_another(&self, caller: u64) -> bool {
        self.lock().proven.is_some_and(|proven| proven != caller)
    }

    /// Notes that the server has accepted a caller.
    pub(crate) fn mark_accepted(&self, caller: u64) {
        let mut shared = self.lock();
        shared.proven = Some(caller);
        shared.refused.take_if(|refused| *refused == caller);
    }

    /// Notes that the server has refused a caller. Other callers are not affected.
    pub(crate) fn refuse(&self, caller: u64) {
        let mut shared = self.lock();
        shared.proven.take_if(|proven| *proven == caller);
        shared.refused = Some(caller);
    }

    /// Whether a client listens on a stream of its own.
    pub(crate) fn is_listening(&self) -> bool {
        !self.lock().listening.is_empty()
    }

    /// Opens a stream for the requests in `message`, which use `policy`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        message: Option<(&Message, &RequestMembers)>,
        policy: &Arc<Policy>,
    ) -> SessionStream {
        let mut shared = self.lock();
        shared.spoken = shared.used;
        shared.filter.set_policy(policy);
        let member = shared.join(self, StreamKind::Exchange);
        let stream = member.stream;
        let opens = Input::OpenStream(stream, StreamKind::Exchange, StreamPacing::Immediate);
        shared.filter.apply(now(), opens);
        match message {
            // A single message, which nearly all clients send, is not copied.
            Some((one, members)) if one.kind() != Kind::Batch => {
                shared.filter.client_message_of(now(), stream, one, Some(members));
            }
            Some((whole, _)) => cancels_apart(whole).0.iter().for_each(|one| {
                let members = RequestMembers::known(message, one);
                shared.filter.client_message_of(now(), stream, one, members);
            }),
            None => drop(shared.filter.apply(now(), Input::MarkIncomplete)),
        }
        member
    }

    /// Handles a client message that opens no stream. Returns further messages for the server.
    pub(crate) fn receive_one_way(&self, message: &Message, policy: &Arc<Policy>) -> Vec<Payload> {
        let mut shared = self.lock();
        shared.spoken = shared.used;
        shared.filter.set_policy(policy);
        for cancel in cancels_in(message) {
            if let Some(mailbox) = shared.cancelled_by(&cancel) {
                shared.post(&mailbox, Mail::Client(cancel));
            }
        }
        shared.pass_answers(message);
        shared.filter.client_message(now(), StreamId::NOWHERE, message);
        shared.note();
        std::iter::from_fn(|| shared.filter.poll_to_server()).collect()
    }

    /// Notes that a message of the client is on its way to the server. If it is a cancellation, the response of the
    /// cancelled request stays open while the returned notices exist.
    pub(crate) fn announce(&self, message: &Message) -> Vec<CancelNotice> {
        let cancels = cancels_in(message).into_iter();
        let meant = cancels.filter_map(|cancel| self.lock().cancelled_by(&cancel));
        meant.map(CancelNotice::new).collect()
    }

    /// Notes that a request was answered, or a task described, on its own stream.
    pub(crate) fn note_delivery(&self, on: StreamId, message: &Message) {
        let mut shared = self.lock();
        shared.filter.note_delivery(now(), Some(on), message);
        shared.note();
    }

    /// Notes the last delivery on a stream: every request of the stream is answered.
    pub(crate) fn note_last_delivery(&self, on: StreamId, message: &Message) {
        let mut shared = self.lock();
        shared.filter.note_delivery(now(), Some(on), message);
        // The answer may have had an id that the session does not know.
        if shared.filter.try_with(|filter| filter.intake().has_calls_on(on)) == Some(true) {
            shared.filter.apply(now(), Input::SettleStream(on));
        }
        shared.note();
    }

    /// Handles a message on the stream of a POST whose filter does not know it as a message about its requests.
    /// `modern`: such a stream carries only messages about its own request.
    pub(crate) fn foreign(&self, on: StreamId, message: &Message, modern: bool) -> Delivery {
        let mut shared = self.lock();
        let origin = Origin::Stream(on);
        let meant =
            shared.filter.try_with(|filter| filter.calls_mut().find_named_stream(origin, message));
        let Some(stream) = meant.flatten().filter(|stream| *stream != on) else {
            // Progress of a request that is over must not reach a later request either.
            if shared.filter.try_with(|filter| filter.calls().is_late(message)) == Some(true) {
                return Delivery::OutOfPlace(Reason::Late);
            }
            shared.filter.learn_token(now(), origin, message);
            return Delivery::Unknown;
        };
        if modern && message.kind() != Kind::Response {
            return Delivery::OutOfPlace(Reason::Unknown);
        }
        match shared.deliver(stream, message, on) {
            // The client of that request has disconnected. Its progress must not reach another client.
            Delivery::Unknown if message.kind() != Kind::Response => {
                Delivery::OutOfPlace(Reason::Gone)
            }
            delivery => delivery,
        }
    }

    /// Handles a message on a listening stream of the client. [`Session::collect`] returns the
    /// bytes for that stream, and the verdict if the `event` of the message has more fields.
    pub(crate) fn receive(
        &self,
        on: StreamId,
        message: &Message,
        event: Option<&SseEvent>,
    ) -> ListenDelivery {
        let mut shared = self.lock();
        let origin = Origin::Stream(on);
        if !shared.repeats_unseen(on) {
            self.scope.mark(now(), &mut shared.filter, origin, message);
        }
        let is_repeated = |filter: &mut Filter| filter.calls().open().is_answered(message);
        if shared.resumed.contains_key(&on) && shared.filter.try_with(is_repeated) == Some(true) {
            // The client resumes the stream to get the messages that it has missed, so they are forwarded even if they
            // were written for it before.
            return ListenDelivery::Passes;
        }
        if message.kind() == Kind::Response
            && let Some(Some(left)) = shared.resumed.get(&on)
        {
            shared.post(left, Mail::Settled(message.clone()));
        }
        shared.pass_question(message);
        let meant = shared.filter.find_stream(now(), origin, message);
        if let Some(stream) = meant.filter(|stream| *stream != on) {
            match shared.deliver(stream, message, on) {
                Delivery::Moved => return ListenDelivery::Moved,
                Delivery::Passes => return ListenDelivery::Passes,
                Delivery::OutOfPlace(_) | Delivery::Unknown => {}
            }
        }
        let found = shared
            .filter
            .try_with(|filter| filter.intake_mut().stream_of_log(now(), origin, message));
        if let Some(mailbox) = found.flatten().and_then(|stream| shared.streams.get(&stream)) {
            shared.post(mailbox, Mail::Log(message.clone().framed(Framing::Apart(None)), on));
        }
        if is_part(message) {
            shared.filter.apply(now(), Input::MarkApart);
        }
        if shared.filter.server_message(now(), origin, message).refuses_all_of(message) {
            return ListenDelivery::Passes;
        }
        let number =
            shared.filter.try_with(|filter| filter.intake().last_number()).unwrap_or_default();
        if event.is_some_and(has_id_or_retry) && shared.waiting.len() < WAITING_MAX {
            shared.waiting.insert(number, on);
        }
        ListenDelivery::Taken(number)
    }

    /// Returns the repaired form of an answer that is forwarded on a stream other than that of its request. See
    /// [`Correlator::repaired_answer`](crate::progress::Correlator::repaired_answer).
    pub(crate) fn repaired(&self, message: &Message) -> Option<Transmit> {
        self.lock().filter.try_with(|filter| filter.calls().repaired_answer(message)).flatten()
    }

    /// Calls `question` with the filter of the session.
    pub(crate) fn with_filter<T>(&self, question: impl FnOnce(&mut FilterGuard) -> T) -> T {
        question(&mut self.lock().filter)
    }

    /// Collects the bytes that are due on a listening stream, and returns the verdicts that matter: the number of each
    /// message, and whether it was withheld.
    pub(crate) fn collect(&self, stream: StreamId, out: &mut Batch) -> Vec<(u64, bool)> {
        let mut shared = self.lock();
        let at = now();
        while let Some(transmit) = shared.filter.poll_transmit(at, stream) {
            out.transmit(&transmit);
        }
        shared.filter.apply(at, Input::MarkWritten(stream));
        shared.note();
        let own = shared.judged.extract_if(.., |(on, ..)| *on == stream);
        own.map(|(_, number, withheld)| (number, withheld)).collect()
    }

    /// Returns the time of the last use; `None` while the session is in use. A stream that Milepost holds for an absent
    /// client does not count as use.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_used = shared.streams.len() > usize::from(shared.held.is_some())
            || !shared.streams.keys().all(|stream| shared.listening.contains(stream));
        (!is_used).then_some(shared.used)
    }
}

impl SessionState {
    fn join(&mut self, session: &Arc<Session>, kind: StreamKind) -> SessionStream {
        self.next += 1;
        let stream = StreamId(self.next);
        let mailbox = Arc::new(Mailbox::default());
        self.streams.insert(stream, Arc::clone(&mailbox));
        let client =
            self.filter.try_with(|filter| filter.calls().handshake().client().cloned()).flatten();
        SessionStream { session: Arc::clone(session), stream, kind, mailbox, client }
    }

    /// Returns the response whose request a message of the client cancels.
    fn cancelled_by(&mut self, message: &Message) -> Option<Arc<Mailbox>> {
        let id = crate::protocol::json::member(&message.params()?, "requestId");
        let id = Key::read(&id?)?;
        let stream =
            self.filter.try_with(|filter| filter.calls().open().sole_stream_of(&id)).flatten()?;
        self.streams.get(&stream).cloned()
    }

    /// Moves a message that came on the stream `on` to the stream of the call that it is about.
    fn deliver(&mut self, stream: StreamId, message: &Message, on: StreamId) -> Delivery {
        let Some(mailbox) = self.streams.get(&stream) else { return Delivery::Unknown };
        if self.listening.contains(&stream) && message.kind() != Kind::Response {
            // On a listening stream the session's filter writes messages itself, so it gets this one.
            let message = message.clone().framed(Framing::Apart(None));
            self.filter.server_message(now(), Origin::Stream(stream), &message);
            mailbox.wake();
            return Delivery::Moved;
        }
        // If Milepost holds this stream for the client, the client may read only the stream of its request.
        let is_held = || self.held.is_some() && self.listening.contains(&on);
        if message.kind() == Kind::Response
            && (mailbox.takes_answers() || is_held())
            && self.post(mailbox, Mail::Answer(message.clone().framed(Framing::Apart(None))))
        {
            return Delivery::Moved;
        }
        if message.kind() == Kind::Response {
            // The answer stays on the stream on which it came, because the client finds the request by the id.
            self.post(mailbox, Mail::Settled(message.clone()));
            // On a stream that the client has left, the answer may not reach it.
            let is_left = self.listening.contains(&stream) && !self.streams.contains_key(&on);
            let told_on = if is_left { on } else { stream };
            self.filter.note_delivery(now(), Some(told_on), message);
            return Delivery::Passes;
        }
        self.post(mailbox, Mail::Progress(message.clone().framed(Framing::Apart(None)), on));
        Delivery::Moved
    }

    /// Puts mail into a mailbox. Returns false if the mailbox is full, which is counted.
    fn post(&self, mailbox: &Mailbox, mail: Mail) -> bool {
        let is_kept = mailbox.put(mail);
        if !is_kept {
            tell_of_dropped_mail(&self.counts, MAILBOX_LIMIT);
        }
        is_kept
    }

    fn note(&mut self) {
        let tasks =
            self.filter.try_with(|filter| filter.calls().open().tasks()).unwrap_or_default();
        if std::mem::replace(&mut self.tasks, tasks) > tasks {
            let Self { filter, streams, counts, .. } = self;
            for (id, mailbox) in streams {
                if filter.try_with(|filter| filter.calls().open().has_tasks_on(*id)) == Some(false)
                    && !mailbox.put(Mail::TasksOver)
                {
                    tell_of_dropped_mail(counts, MAILBOX_LIMIT);
                }
            }
        }
        if !self.leases.is_empty() {
            let Self { filter, leases, .. } = self;
            leases.retain(|lease| {
                let is_active = |filter: &mut Filter| {
                    lease.tokens.iter().any(|token| filter.calls().open().has_token(token))
                };
                filter.try_with(is_active) == Some(true)
            });
        }
        while let Some(record) = self.filter.poll_event() {
            self.log.note(&record);
            if let FilterEvent::Message { number, verdict, .. } = record
                && let Some(stream) = self.waiting.remove(&number)
            {
                let withheld = matches!(verdict, Verdict::Withheld(_));
                self.judged.push((stream, number, withheld));
            }
        }
    }
}

impl Drop for SessionState {
    fn drop(&mut self) {
        // No client has reconnected for the answers of these calls.
        if self.filter.open_calls() > 0 {
            self.filter.apply(now(), Input::CloseClients);
            self.filter.apply(now(), Input::CloseServer("the session is over".into()));
            self.note();
        }
    }
}
