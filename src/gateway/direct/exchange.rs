//! One POST and its response. Each has a filter of its own, so that no request waits for the filter of another.

mod begin;
mod elsewhere;
pub(crate) mod long_json;
mod server_messages;
mod without_stream;

use std::sync::Arc;
use std::task::Context;

use smallvec::SmallVec;

use self::elsewhere::Elsewhere;
use self::server_messages::Handled;
use self::without_stream::Detour;
use super::mailbox::Mail;
use super::session::{Session, SessionStream};
use crate::config::routes::Lifecycle;
use crate::gateway::direct::control::ControlSender;
use crate::gateway::direct::event_stream::EventHandler;
use crate::observe::events::FilterId;
use crate::observe::log::Connection;
use crate::progress::input::Input;
use crate::progress::{
    ArrivedMessage, FastPath, FilterEvent, Origin, Outcome, Policy, RequestMembers, StreamId,
    Transmit, Verdict, VerdictRun,
};
use crate::protocol::jsonrpc::Message;
use crate::protocol::sse::SseEvent;
use crate::relay::active_tokens::{TokenLease, TokenScope};
use crate::relay::filter_guard::FilterGuard;
use crate::transport::clock::now;
use crate::transport::http::body::Batch;
use crate::transport::http::client::UpstreamError;
use crate::transport::http::in_flight::InFlightGuard;
use crate::transport::http::shutdown::SHUTTING_DOWN;
use crate::transport::mcp_http::event_ids::EventIds;
use crate::transport::mcp_http::event_message::{divided, message_in};

/// The only stream of an exchange's filter.
const OWN: StreamId = StreamId(0);

const ORIGIN: Origin = Origin::Stream(OWN);

/// The requests of one POST, and the messages to their client.
pub(crate) struct Exchange {
    filter: FilterGuard,
    member: Option<SessionStream>,
    scope: TokenScope,
    /// The lease of the tokens of unanswered requests.
    lease: Option<TokenLease>,
    log: Connection,
    observing: bool,
    /// Whether closing the stream cancels the requests (2026-07-28).
    modern: bool,
    event_ids: EventIds,
    /// Whether the server has sent an event id, with which the client can resume.
    resumable: bool,
    /// Whether the stream cannot be resumed although the server sends ids.
    resumes_never: bool,
    /// Whether the stream ends with the last answer, even if the server does not end it.
    ends_with_answer: bool,
    /// Whether the last answer has been given.
    answered: bool,
    control: Option<ControlSender>,
    open: Option<InFlightGuard>,
    /// Cancellations in the same POST as the requests, which take effect when the server has accepted the POST.
    cancels: Vec<Message>,
    /// The time of the server's last message.
    last_read: std::time::Instant,
    detour: Detour,
    /// Set if the answers come on another stream, because the server sends nothing in the response to the POST.
    elsewhere: Option<Elsewhere>,
    /// Whether the server has sent anything on the stream of the requests.
    is_heard: bool,
}

impl Exchange {
    /// Notes that the server has accepted the requests, and the other messages in the same POST.
    pub(crate) fn accept(&mut self, policy: &Arc<Policy>) {
        for cancel in std::mem::take(&mut self.cancels) {
            match &self.member {
                Some(member) => drop(member.session.receive_one_way(&cancel, policy)),
                None => drop(self.filter.client_message(now(), OWN, &cancel)),
            }
        }
    }

    /// Returns the id of the filter, for observers.
    pub(crate) fn filter_id(&self) -> Option<FilterId> {
        self.filter.filter_id()
    }

    /// Marks the requests as sent. `control` sends cancellations to the server when Milepost ends a call. `open`: the
    /// guard of an open call, which delays the shutdown; `None` for a POST without calls.
    pub(crate) fn begins(&mut self, open: Option<InFlightGuard>, control: Option<ControlSender>) {
        self.open = open;
        self.control = control;
        self.note(None);
    }

    /// Applies the settings for a server that can only answer requests (`upstream.lifecycle`).
    pub(crate) fn only_answers(&mut self, lifecycle: &Lifecycle) {
        self.resumes_never = true;
        // By default the stream does not end with its last answer. The server may send messages, progress of a task or
        // an event id after it, and a connection that is closed early cannot be reused.
        self.ends_with_answer = lifecycle.end_with_answer;
    }

    /// Joins the session that the server has named in its answer, so that the requests belong to this session from now
    /// on.
    pub(crate) fn join(&mut self, session: &Arc<Session>, message: &Message, policy: &Arc<Policy>) {
        if self.member.is_none() {
            let members = RequestMembers::of(message);
            self.member = Some(session.enter(Some((message, &members)), policy));
        }
    }

    /// Ends the handling of the requests' progress, because the server has refused them or its answer is not read. The
    /// call counts as open until the returned guard is dropped.
    pub(crate) fn release(mut self: Box<Self>) -> Option<InFlightGuard> {
        self.settle_all();
        self.open.take()
    }

    fn settle_all(&mut self) {
        self.filter.apply(now(), Input::SettleStream(OWN));
        if let Some(member) = &self.member {
            member.refused();
        }
        self.note(None);
    }

    /// Answers the requests with an error, because the server has sent a status instead of a message after the client's
    /// response had begun.
    pub(crate) fn fail(&mut self, why: &str, status: Option<u16>) {
        self.filter.apply(now(), Input::FailCalls(status, why.into()));
    }

    /// Milepost stops before the server has answered.
    pub(crate) fn stop(&mut self) {
        self.filter.apply(now(), Input::StopCalls(SHUTTING_DOWN.into()));
    }

    /// Whether an answer is for a request of this exchange.
    pub(crate) fn awaits(&mut self, answer: &Message) -> bool {
        let id = answer.id_key();
        id.is_some_and(|id| {
            self.filter.try_with(|filter| filter.calls().open().stream_of(&id)).flatten()
                == Some(OWN)
        })
    }

    /// Notes that the response has ended: a held answer that matches no request may be the missing one.
    fn end_response(&mut self) {
        if self.filter.try_with(|filter| filter.gate().holds_answer(OWN)) == Some(true) {
            self.filter.apply(now(), Input::EndResponse(OWN));
            if let Some(member) = self.member.as_ref().filter(|_| self.filter.open_calls() == 0) {
                member.refused();
            }
        }
    }

    /// Counts the verdicts that are the next events, kind by kind, because a read brings many of a few kinds.
    fn note_verdicts(&mut self) {
        let mut kinds: SmallVec<[VerdictRun; 4]> = SmallVec::new();
        while let Some(run) = self.filter.poll_verdicts() {
            let same =
                |kind: &&mut VerdictRun| (kind.call, kind.verdict) == (run.call, run.verdict);
            match kinds.iter_mut().find(same) {
                Some(kind) => kind.count += run.count,
                None => kinds.push(run),
            }
        }
        for kind in kinds {
            self.log.note_verdict(kind.call, kind.verdict, kind.count);
        }
    }

    /// Logs the filter's events, and keeps the other SSE fields of withheld events.
    fn note(&mut self, mut out: Option<&mut Batch>) {
        let (mut gave_up, mut is_ended_here) = (false, false);
        loop {
            if self.event_ids.waits_for_none() {
                self.note_verdicts();
            }
            let Some(record) = self.filter.poll_event() else { break };
            self.log.note(&record);
            if let FilterEvent::Call(call) = &record {
                is_ended_here |=
                    matches!(call.outcome, Outcome::TimedOut | Outcome::CancelledByOperator);
                let is_cut = matches!(call.outcome, Outcome::ServerGone | Outcome::ProxyStopped);
                gave_up |= is_ended_here || is_cut;
            }
            if let FilterEvent::Message { number, verdict, .. } = record {
                if !matches!(verdict, Verdict::Withheld(_)) {
                    self.event_ids.note_passed(number);
                    continue;
                }
                let revision =
                    self.filter.try_with(|filter| filter.calls().handshake().revision()).flatten();
                self.event_ids.note_withheld(number, revision, out.as_deref_mut());
            }
        }
        if self.lease.is_some()
            && self.filter.try_with(|filter| !filter.calls().open().is_empty()) != Some(true)
        {
            self.lease = None;
        }
        // The session must know about answers that Milepost itself gave.
        if let Some(member) = self.member.as_ref().filter(|_| gave_up)
            && self.filter.open_calls() == 0
        {
            member.refused();
        }
        // After Milepost has ended all calls, later messages are not given to this client.
        self.answered |= is_ended_here && self.filter.open_calls() == 0;
        while let Some(payload) = self.filter.poll_to_server() {
            if let Some(control) = &self.control {
                control.send(&payload);
            }
        }
    }
}

/// Passes everything that is due to `each`, and notes it as written.
fn drain(filter: &mut FilterGuard, at: std::time::Instant, mut each: impl FnMut(Transmit)) {
    // After an answer nothing is left to do, and finding that out costs less than to do it.
    while !filter.is_idle(at, OWN) {
        let Some(transmit) = filter.poll_transmit(at, OWN) else {
            filter.apply(at, Input::MarkWritten(OWN));
            return;
        };
        each(transmit);
    }
}

impl EventHandler for Exchange {
    fn origin(&self) -> Origin {
        ORIGIN
    }

    fn with_filter<T>(&mut self, question: impl FnOnce(&mut FilterGuard) -> T) -> T {
        question(&mut self.filter)
    }

    fn observes(&self) -> bool {
        self.observing
    }

    fn takes_fast(&self) -> bool {
        !self.observing
    }

    fn take_fast(&mut self, arrived: ArrivedMessage<'_>) -> FastPath {
        self.judge_fast(arrived)
    }

    fn event(&mut self, event: &SseEvent, out: &mut Batch) {
        self.resumable |= !self.resumes_never && event.id().is_some_and(|id| !id.is_empty());
        if let (Some(id), Some(member)) = (event.id(), &self.member) {
            let before =
                self.filter.try_with(|filter| filter.calls().open().value_on(OWN)).flatten();
            member.note_id(id, before);
        }
        if self.observing {
            out.raw(&event.raw);
        }
        let filter = &mut self.filter;
        let Some(message) = message_in(event, || filter.repairs_event_name(ORIGIN)) else {
            if !self.observing {
                self.pass_without_message(event, out);
            }
            return;
        };
        self.is_heard = true;
        let revision =
            self.filter.try_with(|filter| filter.calls().handshake().revision()).flatten();
        let member = self.member.as_ref();
        let is_mixed = |message: &Message| member.is_some_and(|member| member.shares(message));
        let (parts, message) = divided(message, revision, is_mixed);
        for part in &parts {
            self.handle_message(part, out);
        }
        match self.handle_message(&message, out) {
            Handled::Here => {
                let number = self
                    .filter
                    .try_with(|filter| filter.intake().last_number())
                    .unwrap_or_default();
                if self.event_ids.insert(number, event) {
                    self.collect(out);
                }
            }
            Handled::AsItIs(_) => self.event_ids.note_forwarded(event),
            Handled::Elsewhere => {
                self.collect(out);
                self.event_ids.keep_remaining_fields(event, revision, out);
            }
        }
    }

    fn end_large(&mut self, out: &mut Batch) {
        self.is_heard = true;
        self.filter.finish_large(now(), ORIGIN, None);
        self.collect(out);
        if self.filter.open_calls() == 0
            && let Some(member) = &self.member
        {
            member.refused();
        }
    }

    fn collect(&mut self, out: &mut Batch) {
        self.collect_at(now(), out);
    }

    fn collect_at(&mut self, at: std::time::Instant, out: &mut Batch) {
        if self.elsewhere.is_some() {
            self.look_elsewhere(at);
        }
        let observing = self.observing;
        let is_idle = self.filter.is_idle(at, OWN);
        if !is_idle {
            drain(&mut self.filter, at, |transmit| {
                if !observing {
                    out.transmit(&transmit);
                }
            });
        }
        if !is_idle || self.filter.has_events() {
            self.note(Some(out));
        }
        if let Some(member) = self.member.as_ref().filter(|_| self.resumable) {
            member.mailbox.set_told(
                self.filter.try_with(|filter| filter.calls().open().value_on(OWN)).flatten(),
            );
        }
        if self.ends_with_answer {
            self.answered |= self.filter.try_with(|filter| filter.has_answered_all()) == Some(true);
        }
    }

    fn is_open(&self) -> bool {
        !self.answered
    }

    fn holds_end(&self) -> bool {
        self.filter.open_calls() > 0
            && self.member.as_ref().is_some_and(|member| member.mailbox.is_cancelling())
    }

    fn last_read(&mut self, now: std::time::Instant) {
        self.last_read = now;
    }

    fn timeout(&self) -> Option<std::time::Instant> {
        let look = self.elsewhere.as_ref().map(Elsewhere::next_look);
        [self.filter.poll_timeout(), look].into_iter().flatten().min()
    }

    fn listen(&mut self, cx: &mut Context<'_>) {
        if let Some(member) = &self.member {
            member.register(cx);
        }
        if let Some(inbox) = self.filter.cancellations() {
            inbox.register(cx);
        }
    }

    fn drain_mailbox(&mut self, out: &mut Batch) {
        self.filter.cancel_calls();
        let Some(member) = &self.member else { return };
        let mailbox = Arc::clone(&member.mailbox);
        while let Some(mail) = mailbox.take() {
            match mail {
                Mail::Progress(message, from) => {
                    self.detour.stream = Some(from);
                    self.filter.apply(now(), Input::HandleForeign(ORIGIN, message));
                }
                Mail::Log(message, from) => {
                    self.detour.stream = Some(from);
                    self.filter.apply(now(), Input::HearLog(ORIGIN, message));
                }
                Mail::Question(message) => {
                    self.filter.apply(now(), Input::HearLog(ORIGIN, message));
                }
                Mail::Client(message) => {
                    self.filter.client_message(now(), OWN, &message);
                }
                Mail::Settled(message) => {
                    self.filter.apply(now(), Input::NoteDelivery(None, message));
                }
                Mail::AllSettled => self.settle_own(),
                Mail::Answer(message) => drop(self.handle_message(&message, out)),
                Mail::SessionOver => {
                    self.fail("the session has ended before the answer came", None);
                }
                Mail::TasksOver => {
                    self.filter.apply(now(), Input::EndTasks);
                }
                Mail::Replaced => {
                    self.filter.apply(now(), Input::StopHeartbeats);
                }
                Mail::Event(event) => {
                    self.collect(out);
                    out.raw(&event);
                }
            }
        }
    }

    fn ended(&mut self, error: Option<&UpstreamError>, out: &mut Batch) {
        self.end_response();
        self.collect(out);
        // Nothing is cancelled if the client can resume. In 2026-07-28 a closed stream always cancels its requests.
        let resumes = self.resumable && !self.modern;
        if self.filter.open_calls() == 0 || resumes {
            return;
        }
        let why = match error {
            None => "the server closed the stream without an answer".to_owned(),
            Some(UpstreamError::BrokenOff(SHUTTING_DOWN)) => return self.stop(),
            Some(error) => error.for_clients(),
        };
        self.fail(&why, None);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // The answer may have arrived on the stream to which the client has reconnected.
        self.drain_mailbox(&mut Batch::default());
        if let Some(member) = self.member.take() {
            // Without event ids the client cannot resume for the answer.
            let comes_back = self.resumable || self.elsewhere.is_some();
            if !self.modern && !comes_back && self.filter.open_calls() > 0 {
                self.filter.apply(now(), Input::CloseClients);
                self.lease = None;
            }
            let lease = self.lease.take();
            member.leave(&mut self.filter, self.modern, lease, self.control.take());
        }
        if self.filter.is_finished() {
            return;
        }
        let cancels = self.modern;
        self.filter.apply(now(), Input::CloseStream(OWN, cancels));
        // Cancellations are not sent, because the closed connection tells the server the same (2026-07-28).
        while self.filter.poll_to_server().is_some() {}
        while let Some(record) = self.filter.poll_event() {
            self.log.note(&record);
        }
    }
}
