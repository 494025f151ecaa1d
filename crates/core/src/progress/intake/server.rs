//! Handles server messages. A message passes through these functions, from top to bottom:
//!
//! ```text
//! server_message -> dispatch (by kind) -> claims_progress -> progress
//!   read_report:  policies.reports -> correlate -> Claim: note_arrival, admit, complete
//!   hold:         the report waits on its call until the gate sends it (`hold.rs`)
//! ```
//!
//! Every message that is not progress is forwarded to the stream that it belongs to.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::call::{Call, ProtocolValues};
use crate::progress::correlate::id_mapping::{for_client, with_client_names};
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::dialect::Dialect;
use crate::progress::dialect::report::{About, Report};
use crate::progress::event::summary::Outcome;
use crate::progress::event::{Disposition, Origin};
use crate::progress::gate::hold::SourceMessage;
use crate::progress::gate::questions::note_withdrawal;
use crate::progress::gate::server_tasks::note_task;
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::progress::intake::batch::dispatch_batch;
use crate::progress::intake::observe_mode::forward_unchanged;
use crate::progress::intake::scale::apply_scale;
use crate::progress::intake::split_line::is_split;
use crate::progress::intake::state::Intake;
use crate::progress::intake::text_source::{text_from_log, text_from_stdout};
use crate::progress::payload::Payload;
use crate::progress::policy::{CallPolicy, Messages, ValueFrom};
use crate::progress::topology::Topology;
use crate::progress::value::ProgressValue;
use crate::progress::verdict::{Reason, Repair, Repairs, Verdict};
use crate::protocol::jsonrpc::{Framing, Key, Kind, Message};
use crate::protocol::{json, mcp};

/// Limit of the positions in a line of text at which an answer is searched.
const BRACES_MAX: usize = 16;

/// The reason why a message that a dialect claims is not sent as progress.
pub(crate) enum Unread {
    /// No client gets the message.
    Withheld(Reason),
    /// The message is withheld from the client of this call.
    Refused(CallId, Box<About>, Reason),
    /// The message is about a call whose tool does not use this dialect.
    NotTaken(CallId, Box<About>),
}

/// A report together with its call.
pub(crate) struct Claim {
    call: CallId,
    dialect: Dialect,
    /// The repair of the token that was needed to find the call.
    mended: Option<Repair>,
    report: Report,
}

impl Claim {
    /// Counts the report, whether or not the client gets it.
    fn note_arrival(&self, call: &mut Call) {
        call.account.received += 1;
        call.reports.began = true;
        call.reports.has_figure |= self.report.figure.is_some();
        call.reports.bare_results |= self.dialect.has_bare_results();
    }

    /// Checks whether the client may get the report. Adds a repair if the token has to be written in another way.
    fn admit(&mut self, call: &Call) -> Result<(), Reason> {
        let Some(token) = &call.token else { return Err(Reason::NoToken) };
        if call.is_subscription() {
            return Err(Reason::NoToken);
        }
        // Compliant progress is forwarded even after the report that the server marked as its last, because the server
        // may send more.
        let is_final =
            call.reports.last_of.as_ref().is_some_and(|last| last.name() == self.dialect.name());
        if is_final && (self.mended.is_some() || !self.report.repairs.is_empty()) {
            return Err(Reason::AfterFinal);
        }
        let is_due = |text: &Bytes| match token.translated {
            // The token has another text towards the client, so the server's spelling does not matter.
            true => Key::read(text).as_ref() == Some(&token.server),
            false => *text == token.client,
        };
        // A string with other escapes is the same string for every reader. A number is sent in the client's own
        // spelling.
        let spelled =
            self.report.about.token_text.as_ref().is_some_and(|text| {
                is_due(text) || (text.starts_with(b"\"") && self.mended.is_none())
            });
        if !spelled {
            self.report.repairs.add(Repair::Token);
        }
        Ok(())
    }

    /// Completes the report with the route's settings: adds a total to a value without a total, or takes the value from
    /// the text, or from a string in `message`. `message` is needed only if the value may be a string.
    fn complete(&mut self, call: &mut Call, message: Option<&Message>) {
        if self.report.last {
            call.reports.last_of = Some(self.dialect.clone());
        }
        let policy = Arc::clone(&call.policy);
        let policy = policy.of(call.tool.as_deref());
        if policy.value_from == ValueFrom::Words && self.prefer_words(call, policy) {
            return;
        }
        apply_scale(&mut self.report, policy.scale);
        if self.report.figure.is_none() {
            // Some servers write the value as a string: `"progress":"50%"`.
            let params = message.and_then(Message::params);
            let written = params.and_then(|params| json::member(&params, "progress"));
            let written = written.filter(|text| text.starts_with(b"\""));
            self.report.figure =
                written.and_then(|text| policy.extract.figure(&json::decode_str(&text)?));
        }
        if self.report.figure.is_some() {
            call.reports.protocol_values = ProtocolValues::Members;
        } else {
            // A piece of a text may end in the middle of a number.
            let words = self.report.message.as_deref().filter(|_| !self.report.chunk);
            self.report.figure = words.and_then(|words| call.figure_in_words(words));
            self.report.in_words = true;
        }
        call.reports.has_figure |= self.report.figure.is_some();
    }
}

impl Claim {
    /// Replaces a declared number without a total by a value with a total from the message text. Returns whether this
    /// decides the value. After a value from a text, a number without a total counts something else, so it is ignored
    /// and the report only shows that the call is alive.
    fn prefer_words(&mut self, call: &mut Call, policy: &CallPolicy) -> bool {
        if self.report.figure.as_ref().is_none_or(|figure| figure.total.is_some()) {
            return false;
        }
        let words = self.report.message.as_deref().and_then(json::decode_str);
        let found = words.and_then(|words| policy.extract.figure(&words));
        let found = found.filter(|figure| figure.total.is_some());
        if found.is_none() && !matches!(call.reports.protocol_values, ProtocolValues::Words { .. })
        {
            return false;
        }
        if let Some(total) = found.as_ref().and_then(|figure| figure.total.as_ref()) {
            call.reports.protocol_values = ProtocolValues::Words { total: Some(total.value) };
        }
        self.report.in_words = true;
        self.report.figure = found;
        self.report.repairs.add(Repair::Number);
        true
    }
}

impl Call {
    /// Returns the value in the message text of a report. If the text contradicts earlier values of the server, there
    /// is no value, and the report only shows that the call is alive.
    pub(crate) fn figure_in_words(&mut self, words: &[u8]) -> Option<ProgressValue> {
        let policy = self.settings();
        if policy.messages == Messages::Append {
            return None;
        }
        let found = policy.extract.figure(&json::decode_str(words)?)?;
        let on_fall = policy.on_fall;
        self.reports.protocol_values.follow(&found, on_fall).then_some(found)
    }
}

impl Intake {
    /// Handles a message of the server.
    pub fn server_message(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Disposition {
        if self.gate.calls.streams.topology == Topology::RequestOfSession
            && self.is_of_another_filter(message)
        {
            self.done = Repairs::default();
            self.gate.calls.received_at = Some(now);
            return Disposition::NotMine;
        }
        self.server_message_here(now, origin, message)
    }

    /// Handles a message of the server that no other filter of the session can handle.
    pub fn server_message_here(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
    ) -> Disposition {
        self.gate.calls.received_at = Some(now);
        // Keryx sends an error without an envelope as the only data of an event. On standard output, an object of this
        // kind may be a line of a log.
        let is_apart = message.kind() == Kind::Noise && matches!(origin, Origin::Stream(_));
        let bare_error = is_apart.then(|| message.clone().or_bare_error());
        let message = bare_error.as_ref().unwrap_or(message);
        self.at_work =
            Some((self.gate.calls.fallback_stream(origin).ok().flatten(), message.clone()));
        if self.gate.calls.policy.observes()
            && forward_unchanged(&mut self.gate.calls, origin, message)
        {
            // The client already has the message. If the filter fails now, the message must not be written again.
            self.at_work = None;
        }
        let mut done = std::mem::take(&mut self.done);
        let readable = self.gate.calls.readable(origin, message, &mut done);
        let message = readable.as_ref().unwrap_or(message);
        let fate = match answer_behind_text(&self.gate, message) {
            Some((text, answer)) => {
                self.dispatch(now, origin, &Message::parse(text.clone()), Repairs::default());
                self.dispatch(now, origin, &answer, Repairs::default());
                Disposition::NotAMessage(text)
            }
            None => self.dispatch(now, origin, message, done),
        };
        self.at_work = None;
        self.reports = None;
        // The shell has named these tokens for one message only.
        self.gate.calls.names.elsewhere.clear();
        if self.gate.calls.policy.observes() && !self.gate.calls.streams.topology.has_many_streams()
        {
            Disposition::Consumed
        } else {
            fate
        }
    }

    pub(crate) fn dispatch(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
        mut done: Repairs,
    ) -> Disposition {
        let is_several = match message.kind() {
            Kind::Batch => true,
            Kind::Opaque => is_split(&self.gate.calls, message),
            _ => false,
        };
        if is_several {
            dispatch_batch(self, now, origin, message, done);
            let rest = message.on_one_line().map(|(_, rest)| rest).filter(|rest| !rest.is_empty());
            let Some(rest) = rest.filter(|_| !self.gate.calls.streams.topology.has_strangers())
            else {
                return Disposition::Consumed;
            };
            let rest = Message::parse(rest).framed(Framing::Apart(None));
            return self.dispatch(now, origin, &rest, Repairs::default());
        }
        let well_formed = self.gate.calls.well_formed(origin, message, &mut done);
        let message = well_formed.as_ref().unwrap_or(message);
        let number = self.next_number();
        match message.kind() {
            Kind::Noise => {
                if self.gate.calls.policy.observes_the_rest()
                    && self.gate.calls.streams.topology.needs_no_choice()
                {
                    let placed = (self.gate.calls.streams.session_stream, Payload::of(message));
                    self.gate.calls.forward(Ok(placed), (number, None), message, done);
                    text_from_stdout(&mut self.gate, now, origin, message.raw());
                    return Disposition::Consumed;
                }
                self.gate.calls.events.push_verdict(number, None, Verdict::Withheld(Reason::Noise));
                text_from_stdout(&mut self.gate, now, origin, message.raw());
                return Disposition::NotAMessage(message.raw().clone());
            }
            Kind::Response => {
                self.detached.answer(&mut self.gate, now, origin, message, number, done)
            }
            Kind::Notification if self.gate.calls.policy.claims_progress(message) => {
                self.progress(now, origin, message, number, done);
            }
            Kind::Notification => {
                // Decided before the notification is handled, because handling may end the call that it is about.
                let about = self.gate.calls.open.sole_call_on(origin, &self.gate.calls.streams);
                let placed = self.gate.calls.destination_of(origin, message);
                self.server_notification(now, message);
                self.gate.calls.forward(placed, (number, about), message, done);
                text_from_log(&mut self.gate, now, origin, message);
            }
            Kind::Request => {
                self.detached.server_request(&mut self.gate, now, origin, message, number, done)
            }
            Kind::Opaque | Kind::Batch if self.gate.calls.streams.topology.has_strangers() => {
                // It is unknown which client the text belongs to, and which other calls it names.
                self.gate.calls.events.push_verdict(
                    number,
                    None,
                    Verdict::Withheld(Reason::Unknown),
                );
            }
            Kind::Opaque | Kind::Batch => {
                self.detached.retire_seen_answers(&mut self.gate, now, message);
                let placed = self.gate.calls.destination_of(origin, message);
                self.gate.calls.forward(placed, (number, None), message, done);
            }
        }
        Disposition::Consumed
    }

    /// Reads a progress notification of any dialect, and lets the report wait for its client.
    pub(crate) fn progress(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
        number: u64,
        done: Repairs,
    ) {
        if self.gate.calls.streams.topology.keeps_shadows()
            && self.gate.calls.may_be_of_unseen(origin, message)
        {
            let placed =
                self.gate.calls.fallback_stream(origin).map(|on| (on, Payload::of(message)));
            return self.gate.calls.forward(placed, (number, None), message, done);
        }
        let report = self.read_report(origin, message);
        let policy = match &report {
            Ok((id, _)) | Err(Unread::NotTaken(id, _) | Unread::Refused(id, ..)) => {
                self.gate.calls.policy_of(*id)
            }
            Err(Unread::Withheld(_)) => &self.gate.calls.policy,
        };
        // Clients read `notifications/progress` themselves, so the original in addition to the repaired message would
        // be a second notification.
        let keep = policy.keep_original && message.method().as_deref() != Some(mcp::PROGRESS);
        let passes = match &report {
            Ok((id, report)) if keep || self.gate.calls.open.is_observed(*id) => {
                Some((*id, &report.about))
            }
            Err(Unread::Refused(id, about, _)) if self.gate.calls.open.is_observed(*id) => {
                Some((*id, &**about))
            }
            Err(Unread::NotTaken(id, about)) => Some((*id, &**about)),
            _ => None,
        };
        let is_nobodys = matches!(report, Err(Unread::Withheld(_)));
        let keep = keep || is_nobodys && self.gate.calls.policy.observes_the_rest();
        // Invariant: a message that may be about another client's call is withheld.
        let is_private = self.gate.calls.is_private();
        let keep = keep && !is_private || passes.is_some();
        if keep {
            let about = passes.map(|(id, _)| id);
            let call = passes.and_then(|(id, about)| {
                let call = self.gate.calls.open.get(id)?;
                Some((
                    Some(call.stream),
                    with_client_names(call, message, about, self.gate.calls.streams.topology),
                ))
            });
            let placed = call.map_or_else(|| self.gate.calls.destination_of(origin, message), Ok);
            self.gate.calls.forward(placed, (number, about), message, done);
        }
        match report {
            Err(Unread::Withheld(reason)) if !keep => {
                self.gate.calls.events.push_verdict(number, None, Verdict::Withheld(reason));
            }
            Err(Unread::Refused(call, _, reason)) if !keep => {
                self.gate.calls.events.push_verdict(number, Some(call), Verdict::Withheld(reason));
            }
            Err(_) => {}
            Ok((id, report)) => {
                self.at_work = None;
                let call = self.gate.calls.open.get(id);
                let arrived = SourceMessage {
                    message: (!keep).then_some(number),
                    raw: call.and_then(|call| {
                        for_client(call, message, &report, self.gate.calls.streams.topology)
                    }),
                    framing: message.framing().clone(),
                    bytes: message.raw().len(),
                    done: if keep { Repairs::default() } else { done },
                };
                self.gate.hold(now, id, arrived, report);
            }
        }
    }

    /// Reads a report and finds its call. `Err` contains the reason if the message is not sent as progress.
    pub(crate) fn read_report(
        &mut self,
        origin: Origin,
        message: &Message,
    ) -> Result<(CallId, Report), Unread> {
        let mut found = Err(Unread::Withheld(Reason::Unreadable));
        for (dialect, report) in self.take_reports(message) {
            let claim = self.correlate(origin, dialect, report);
            // If several dialects read the message, the record shows the first reason that says more than "unreadable".
            if claim.is_ok() || matches!(found, Err(Unread::Withheld(Reason::Unreadable))) {
                found = claim;
            }
            if found.is_ok() {
                break;
            }
        }
        self.accept(origin, found?, Some(message))
    }

    /// Counts a report for its call, and completes it.
    pub(crate) fn accept(
        &mut self,
        origin: Origin,
        mut claim: Claim,
        message: Option<&Message>,
    ) -> Result<(CallId, Report), Unread> {
        let id = claim.call;
        self.gate.rebind_stream(origin, id);
        let received_at = self.gate.calls.received_at;
        let Some(call) = self.gate.calls.open.get_mut(id) else {
            return Err(Unread::Withheld(Reason::Unknown));
        };
        claim.note_arrival(call);
        if let Some(at) = received_at {
            call.note_for_task(&claim.report, at);
        }
        if let Err(reason) = claim.admit(call) {
            call.account.withheld(reason);
            return Err(Unread::Refused(id, Box::new(claim.report.about), reason));
        }
        claim.complete(call, message);
        Ok((id, claim.report))
    }

    /// Returns the call that a report is about, if the call's tool uses this dialect.
    pub(crate) fn correlate(
        &mut self,
        origin: Origin,
        dialect: Dialect,
        report: Report,
    ) -> Result<Claim, Unread> {
        let found = self.gate.calls.attribute(&report.about, origin);
        let (call, mended) = found.map_err(Unread::Withheld)?;
        let known = self.gate.calls.open.get(call);
        let settings = known.map_or(&self.gate.calls.policy.call, |call| call.settings());
        // Tools of one route may use different dialects for the same method, so the message is read with the dialect of
        // its own tool.
        if !settings.dialects.contains(&dialect) {
            return Err(Unread::NotTaken(call, Box::new(report.about)));
        }
        Ok(Claim { call, dialect, mended, report })
    }

    /// Handles notifications that are about calls but are not progress.
    pub(crate) fn server_notification(&mut self, now: Instant, message: &Message) {
        let Some(method) = message.method() else { return };
        if method == mcp::TASK_STATUS {
            let params = message.params().unwrap_or_default();
            note_task(&mut self.gate, now, &params);
        } else if method == mcp::CANCELLED {
            note_withdrawal(&mut self.gate, now, message);
            // Up to 2025-11-25 a server cancels its own requests. From 2026-07-28 on it can only end a client's
            // `subscriptions/listen`.
            let params = message.params().unwrap_or_default();
            let call = json::member(&params, "requestId")
                .and_then(|id| Key::read(&id))
                .and_then(|id| self.gate.calls.open.ledger.by_id(&id));
            if let Some(call) = call
                && self.gate.calls.open.get(call).is_some_and(|call| &*call.method == mcp::LISTEN)
            {
                self.gate.end_call(now, call, Tombstone::Ended, Outcome::Cancelled);
            }
        }
    }
}

/// Returns an answer to an open call that follows other text on its line, as if a server prints dots without ending the
/// line. A message of another kind after text may come from the server's log of received messages, so it is ignored.
fn answer_behind_text(gate: &Gate, message: &Message) -> Option<(Bytes, Message)> {
    let raw = message.raw();
    if message.kind() != Kind::Noise || gate.calls.policy.observes() {
        return None;
    }
    let braces = memchr::memchr_iter(b'{', raw).take(BRACES_MAX);
    braces.filter(|at| *at > 0).find_map(|at| {
        let tail = Message::parse(raw.slice(at..));
        let open = tail.kind() == Kind::Response && tail.is_strict();
        let call =
            tail.id_key().filter(|_| open).and_then(|id| gate.calls.open.ledger.by_id(&id))?;
        let call = gate.calls.open.get(call).filter(|call| !call.is_observed());
        call.map(|_| (raw.slice(..at), tail))
    })
}
