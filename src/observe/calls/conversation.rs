//! One conversation: links messages with their verdicts, and both with calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Instant;

use bytes::Bytes;
use memchr::memmem::Finder;

use super::entry::{CallEnd, CallEntry, CallState, CapturedMessage, LateWords, MessageFate};
use super::show::is_figure;
use super::taps::TapMessage;
use super::text::MessageText;
use super::{RouteTotals, Table};
use crate::observe::cancellations::CancelInbox;
use crate::observe::events::{EventKind, Observer, ObserverEvent, Scope};
use crate::observe::pending_verdicts::PendingVerdicts;
use crate::progress::input::Input;
use crate::progress::policy::masks::Masks;
use crate::progress::{CallId, FilterEvent, OpenCall, Outcome, Repair, Summary, Verdict};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::{json, mcp};

/// Maximum number of ended calls of one connection that can still receive an event.
const ENDED_MAX: usize = 32;

/// Maximum number of characters of a server's name that are shown.
const SERVER_NAME_MAX: usize = 60;

/// Observes one conversation.
#[derive(Debug)]
pub(super) struct WatchedConversation {
    table: Arc<Table>,
    route: Arc<RouteTotals>,
    scope: Scope,
    masks: Masks,
    is_observed: bool,
    /// The open calls. The value of a call is `None` if the table was full.
    open: BTreeMap<CallId, Option<(Arc<CallEntry>, usize)>>,
    ended: VecDeque<(CallId, Weak<CallEntry>)>,
    pending: PendingVerdicts,
    /// The last client message, and the message that the server got instead.
    client_message: Option<(Instant, Bytes)>,
    /// Whether the last client message has opened a call.
    has_opened: bool,
    sent: Option<Bytes>,
    /// The last message to a client, while its verdict is not known.
    to_client: Option<(Instant, Bytes)>,
    /// Whether `to_client` is known to come from a message of the server.
    is_claimed: bool,
    has_failed: bool,
    /// The cancellations of operators for the calls of the conversation.
    cancellations: Arc<CancelInbox>,
}

impl WatchedConversation {
    pub(super) fn new(
        table: &Arc<Table>,
        route: Arc<RouteTotals>,
        scope: Scope,
        (masks, is_observed): (Masks, bool),
    ) -> Self {
        Self {
            table: Arc::clone(table),
            route,
            scope,
            masks,
            is_observed,
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            pending: PendingVerdicts::default(),
            client_message: None,
            has_opened: false,
            sent: None,
            to_client: None,
            is_claimed: false,
            has_failed: false,
            cancellations: Arc::default(),
        }
    }

    fn find(&self, call: CallId) -> Option<Arc<CallEntry>> {
        if let Some(open) = self.open.get(&call) {
            return open.as_ref().map(|(entry, _)| Arc::clone(entry));
        }
        let ended = self.ended.iter().find(|(id, _)| *id == call);
        ended.and_then(|(_, entry)| entry.upgrade())
    }

    /// Finds a call whose number is not known, among the ended and the open calls.
    fn find_by(&self, is: impl Fn(&CallEntry) -> bool) -> Option<Arc<CallEntry>> {
        let open = self.open.values().flatten().map(|(entry, _)| Arc::clone(entry));
        let ended = self.ended.iter().rev().filter_map(|(_, entry)| entry.upgrade());
        ended.chain(open).find(|entry| is(entry))
    }

    fn input(&mut self, at: Instant, input: &Input, number: u64) {
        match input {
            Input::ClientMessage(..) | Input::ClientLarge(..) => {
                self.table.note_use();
                self.client_message = input.message_line().map(|line| (at, line.text));
                self.has_opened = false;
                self.sent = None;
            }
            // A line on standard error belongs to no call and is not kept: only observers of `/tap` see it.
            Input::Stderr(line) if self.table.taps.any() => {
                let before = Some(MessageText::of(line.as_bytes()));
                let kept = CapturedMessage { at, fate: MessageFate::Stderr, before, after: None };
                self.keep(None, kept, |_, _| {});
            }
            Input::FailOpen => self.has_failed = true,
            _ => self.pending.receive(at, input, number),
        }
    }

    fn decision(&mut self, at: Instant, record: &FilterEvent) {
        match record {
            FilterEvent::Opened(_)
            | FilterEvent::TakenOver(_)
            | FilterEvent::Refused(_)
            | FilterEvent::UnansweringError(_)
            | FilterEvent::Task(_) => {}
            FilterEvent::Late(news) => {
                let entry = news.call.and_then(|call| self.find(call));
                if let Some(entry) = entry {
                    entry.change(|state| state.late = Some(LateWords::of(news)));
                }
            }
            FilterEvent::Message { number, call, verdict } => {
                let received = self.pending.take(*number);
                self.message(at, received, *call, *verdict);
            }
            FilterEvent::Heartbeat(call) => {
                let after = self.to_client.take().map(|(_, text)| MessageText::of(&text));
                let entry = self.find(*call);
                let kept =
                    CapturedMessage { at, fate: MessageFate::Heartbeat, before: None, after };
                self.keep(entry, kept, |state, kept| {
                    state.account.sent += 1;
                    state.account.beats += 1;
                    let has_figure = is_figure(&state.words, &kept.after);
                    state.told(&kept.after);
                    if has_figure {
                        state.told_figure(&kept.after);
                    }
                    state.last_sent = Some(at);
                });
            }
            FilterEvent::Call(summary) => self.end(summary),
        }
    }

    fn message(
        &mut self,
        at: Instant,
        received: Option<(Instant, Bytes)>,
        call: Option<CallId>,
        verdict: Verdict,
    ) {
        let entry = call.and_then(|call| self.find(call));
        let is_withheld = matches!(verdict, Verdict::Withheld(_));
        self.is_claimed |= !is_withheld;
        // No observer needs the texts, so they are not copied.
        if entry.is_none() && !self.table.taps.any() {
            return;
        }
        // On a route that only observes, the client got the original message, whatever the verdict.
        let is_mended = matches!(verdict, Verdict::Repaired(_)) && !self.is_observed;
        let sent = self.to_client.as_ref().filter(|_| is_mended);
        let after = sent.map(|(_, text)| MessageText::of(text));
        let text = received.as_ref().map(|(_, text)| text);
        // A call ends before the verdict on its answer is known, so it is no longer open here.
        let is_over = call.is_some_and(|call| !self.open.contains_key(&call));
        let is_answer = is_over
            && !is_withheld
            && text.is_some_and(|text| Message::parse(text.clone()).kind() == Kind::Response);
        let is_progress = !is_answer
            && (verdict != Verdict::Forwarded || text.is_some_and(|text| names_progress(text)));
        let fate = if is_answer {
            MessageFate::Answer(verdict)
        } else {
            MessageFate::ServerMessage(verdict)
        };
        if let (Some(entry), Some(text)) = (&entry, text.filter(|_| is_answer)) {
            self.learn_server(entry, text);
        }
        let before = text.map(|text| MessageText::of(text));
        let received_at = received.map(|(at, _)| at);
        let kept = CapturedMessage { at, fate, before, after };
        let observes = self.is_observed;
        let reaches_client = observes || !is_withheld;
        self.keep(entry, kept, |state, kept| {
            state.last_received = state.last_received.max(received_at);
            if reaches_client {
                state.last_sent = Some(at);
            }
            state.is_answered |= is_answer;
            if !is_progress {
                return;
            }
            state.count(verdict);
            if reaches_client {
                let text = if kept.after.is_some() { &kept.after } else { &kept.before };
                let has_figure = observes || has_own_figure(verdict, &state.words, text);
                state.told(text);
                if has_figure {
                    state.told_figure(text);
                }
            }
        });
    }

    /// Learns the server's name from its answer to `initialize`.
    fn learn_server(&self, entry: &CallEntry, answer: &Bytes) {
        // The first name stays, because a route has only one server.
        if &*entry.method != mcp::INITIALIZE || self.route.server.get().is_some() {
            return;
        }
        let result = Message::parse(answer.clone()).result().unwrap_or_default();
        let info = json::member(&result, "serverInfo").unwrap_or_default();
        let name = json::member(&info, "name");
        if let Some(name) = name.as_ref().and_then(|name| json::decode_str(name)) {
            let shown = name.chars().filter(|sign| !sign.is_control()).take(SERVER_NAME_MAX);
            let _ = self.route.server.set(shown.collect());
        }
    }

    /// Adds a message to its call, and shows the message to the observers of `/tap`.
    fn keep(
        &self,
        entry: Option<Arc<CallEntry>>,
        kept: CapturedMessage,
        change: impl FnOnce(&mut CallState, &CapturedMessage),
    ) {
        self.show(entry.as_deref(), &kept);
        let Some(entry) = entry else { return };
        let known = kept.clone();
        entry.take(kept, |state| change(state, &known));
        self.table.make_room();
    }

    fn end(&mut self, summary: &Summary) {
        let Some(open) = self.open.remove(&summary.call) else { return };
        self.route.ended(summary);
        if let Some((entry, _)) = open {
            self.table.end(&entry, summary.ended, CallEnd::Outcome(summary.outcome), Some(summary));
            self.show_end(&entry, summary.ended, CallEnd::Outcome(summary.outcome));
            if self.ended.len() >= ENDED_MAX {
                self.ended.pop_front();
            }
            // A weak reference, because the table decides how long an ended call is kept.
            self.ended.push_back((summary.call, Arc::downgrade(&entry)));
        }
    }

    /// Shows the end of a call that ended without an answer.
    fn show_end(&self, entry: &CallEntry, at: Instant, ended: CallEnd) {
        let is_answer = matches!(
            ended,
            CallEnd::Outcome(
                Outcome::Result | Outcome::ToolError | Outcome::Interim | Outcome::Error
            )
        );
        if !is_answer {
            let kept =
                CapturedMessage { at, fate: MessageFate::End(ended), before: None, after: None };
            self.show(Some(entry), &kept);
        }
    }

    /// Shows a message to the observers of `/tap`, if there are any.
    fn show(&self, call: Option<&CallEntry>, kept: &CapturedMessage) {
        if self.table.taps.any() {
            let (at, route, masks) = (self.table.ms(kept.at), &self.route, &self.masks);
            self.table.taps.publish(&TapMessage { at, route, masks, call, kept });
        }
    }

    /// Records a message to a client that does not come from a server message: an answer in the server's place, or
    /// progress made of text.
    fn own(&self, at: Instant, text: Bytes) {
        let message = Message::parse(text);
        let after = Some(MessageText::of(message.raw()));
        if message.kind() == Kind::Response && message.error().is_some() {
            // An answer in the server's place names no call: it is found by its id, and must not be answered yet.
            let answered = message.id().and_then(|id| {
                self.find_by(|entry| entry.has_id(&id) && !entry.state().is_answered)
            });
            let Some(entry) = answered else { return };
            let Some((_, ended)) = entry.state().ended else { return };
            let kept = CapturedMessage { at, fate: MessageFate::Own(ended), before: None, after };
            self.keep(Some(entry), kept, |state, _| {
                state.is_answered = true;
                state.last_sent = Some(at);
            });
        } else if message.method().as_deref() == Some(mcp::PROGRESS) {
            let token = json::member(&message.params().unwrap_or_default(), "progressToken");
            let of = token.and_then(|token| self.find_by(|entry| entry.has_token(&token)));
            let kept = CapturedMessage { at, fate: MessageFate::FromText, before: None, after };
            self.keep(of, kept, |state, kept| {
                state.account.read_from_text += 1;
                state.account.sent += 1;
                state.told(&kept.after);
                state.told_figure(&kept.after);
                state.last_sent = Some(at);
            });
        }
    }

    /// Records a client message that does not open a call. In an HTTP session several filters see the message, but it
    /// is recorded only once.
    fn record_client_message(&self, at: Instant, text: Bytes) {
        if !self.table.taps.any() {
            return;
        }
        let is_request = matches!(Message::parse(text.clone()).kind(), Kind::Request | Kind::Batch);
        let is_recorded_elsewhere = match self.scope {
            Scope::Whole => false,
            Scope::Exchange => !is_request,
            Scope::Session => is_request,
        };
        if !is_recorded_elsewhere {
            let before = Some(MessageText::of(&text));
            self.keep(
                None,
                CapturedMessage { at, fate: MessageFate::ClientMessage, before, after: None },
                |_, _| {},
            );
        }
    }
}

/// Whether a message has the method `notifications/progress`.
fn names_progress(text: &[u8]) -> bool {
    static NAME: LazyLock<Finder<'static>> =
        LazyLock::new(|| Finder::new(mcp::PROGRESS.as_bytes()));
    NAME.find(text).is_some()
}

/// Whether the progress that was sent has a value that the server gave, and not one that Milepost invented.
fn has_own_figure(
    verdict: Verdict,
    before: &Option<MessageText>,
    sent: &Option<MessageText>,
) -> bool {
    let Verdict::Repaired(repairs) = verdict else { return true };
    let has = |wanted| repairs.iter().any(|repair| repair == wanted);
    // A number that was repaired may be read from the server's text, or be a lift, which is only a small step.
    !has(Repair::Lift) && (!has(Repair::Number) || is_figure(before, sent))
}

/// Returns the request with this id in a client message.
fn request_in(text: &Bytes, id: &Bytes) -> MessageText {
    let is_array = text.first() == Some(&b'[');
    let mut elements = is_array.then(|| Message::parse(text.clone())).into_iter();
    let element = elements.find_map(|array| {
        array.elements().find(|one| one.id().as_ref() == Some(id)).map(|one| one.raw().clone())
    });
    MessageText::of(element.as_ref().unwrap_or(text))
}

impl Observer for WatchedConversation {
    fn on_event(&mut self, event: &ObserverEvent) {
        match &event.kind {
            EventKind::Input(input, number) => self.input(event.at, input, *number),
            EventKind::ToServer(text) => self.sent = Some(text.clone()),
            EventKind::ToClient(_, text) => {
                self.to_client = Some((event.at, text.clone()));
                self.is_claimed = false;
            }
            EventKind::Noise(_) => {}
            EventKind::Decided(record) => self.decision(event.at, record),
        }
    }

    fn on_call(&mut self, call: &OpenCall<'_>) {
        // A session's filter continues a call that the filter of an exchange has opened, so the call is in the table.
        let known = (self.scope == Scope::Session).then(|| self.table.find(&self.route, call));
        if let Some(entry) = known.flatten() {
            let moves = entry.take_over();
            entry.serve(&self.cancellations, call.call);
            self.route.opened(1);
            self.open.insert(call.call, Some((entry, moves)));
            return;
        }
        self.route.opened(1);
        let how = (&self.masks, self.is_observed);
        let entry = self.table.open(&self.route, call, how);
        if let Some(entry) = &entry {
            entry.serve(&self.cancellations, call.call);
        }
        self.open.insert(call.call, entry.clone().map(|entry| (entry, 0)));
        if let Some((at, text)) = &self.client_message {
            let before = Some(request_in(text, call.id));
            let after = self.sent.as_deref().map(MessageText::of);
            let kept = CapturedMessage { at: *at, fate: MessageFate::Request, before, after };
            if entry.is_some() || self.table.taps.any() {
                self.keep(entry, kept, |_, _| {});
            }
        }
        self.has_opened = true;
    }

    fn settle(&mut self) {
        if let Some((at, text)) = self.to_client.take()
            && !self.is_claimed
            && !self.is_observed
        {
            self.own(at, text);
        }
        if let Some((at, text)) = self.client_message.take()
            && !self.has_opened
        {
            self.record_client_message(at, text);
        }
        self.sent = None;
    }

    fn cancellations(&self) -> Option<&Arc<CancelInbox>> {
        Some(&self.cancellations)
    }
}

impl Drop for WatchedConversation {
    fn drop(&mut self) {
        let ended = if self.has_failed { CallEnd::FilterFailed } else { CallEnd::Unanswered };
        let at = self.table.now();
        for open in std::mem::take(&mut self.open).into_values() {
            self.route.opened(-1);
            let Some((entry, moves)) = open else { continue };
            // If another filter has taken over the call, it continues there, and so it does not end here.
            if entry.moves() == moves {
                self.table.end(&entry, at, ended, None);
                self.show_end(&entry, at, ended);
            }
        }
    }
}
