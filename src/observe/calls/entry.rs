//! One call as observers see it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use bytes::Bytes;

use super::text::MessageText;
use super::{RouteTotals, lock};
use crate::observe::cancellations::CancelInbox;
use crate::observe::redact::Masking;
use crate::progress::clients::Client;
use crate::progress::policy::masks::Masks;
use crate::progress::{
    CallId, CallStats, LateEvent, LateNews, OpenCall, Outcome, Summary, Verdict,
};

/// Maximum number of messages at the beginning of a call that are kept.
const FIRST_MAX: usize = 16;

/// Maximum number of messages at the end of a call that are kept. Messages in between are only counted.
const LAST_MAX: usize = 48;

/// Maximum number of bytes of a name, an id or a token in the table of calls. Longer text is cut.
const NAME_MAX: usize = 256;

/// The kind of a message, and the verdict on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageFate {
    /// The request.
    Request,
    /// Another client message.
    ClientMessage,
    /// The server's answer.
    Answer(Verdict),
    /// Another message of the server.
    ServerMessage(Verdict),
    /// A heartbeat.
    Heartbeat,
    /// Progress that was made from text.
    FromText,
    /// An answer in the server's place, and how the call ended.
    Own(CallEnd),
    /// A line of standard error.
    Stderr,
    /// The end of the call.
    End(CallEnd),
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The filter reported this outcome.
    Outcome(Outcome),
    /// The stream was closed, and no other filter continues the call.
    Unanswered,
    /// The filter has failed.
    FilterFailed,
}

impl CallEnd {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Outcome(outcome) => outcome.name(),
            Self::Unanswered => "unanswered",
            Self::FilterFailed => "not followed",
        }
    }
}

/// A message with its verdict.
#[derive(Debug, Clone)]
pub(super) struct CapturedMessage {
    pub(super) at: Instant,
    pub(super) fate: MessageFate,
    /// The original message.
    pub(super) before: Option<MessageText>,
    /// The message that the other side got, if it differs.
    pub(super) after: Option<MessageText>,
}

impl CapturedMessage {
    /// Returns the number of bytes that the message takes in memory.
    fn bytes(&self) -> usize {
        let texts = self.before.iter().chain(&self.after);
        size_of::<Self>() + texts.map(|text| text.bytes().len()).sum::<usize>()
    }
}

/// The data of a call that changes.
#[derive(Debug, Default)]
pub(super) struct CallState {
    pub(super) client: Option<Arc<Client>>,
    pub(super) ended: Option<(Instant, CallEnd)>,
    pub(super) first: Vec<CapturedMessage>,
    pub(super) last: VecDeque<CapturedMessage>,
    pub(super) left_out: u64,
    /// Bytes of memory that the messages take.
    bytes: usize,
    /// The last progress sent to the client whose value was given by the server (not a lift).
    pub(super) figure: Option<MessageText>,
    /// The last progress sent to the client, for its text.
    pub(super) words: Option<MessageText>,
    pub(super) last_received: Option<Instant>,
    pub(super) last_sent: Option<Instant>,
    pub(super) account: CallStats,
    /// Whether the answer has been sent.
    pub(super) is_answered: bool,
    /// The last event of work that continues although the client has given up the call (`late`).
    pub(super) late: Option<LateWords>,
    /// The filter that serves the call, and its number for the call.
    pub(super) served_by: Option<(Weak<CancelInbox>, CallId)>,
}

/// The last event of the work that a client has given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LateWords {
    event: LateEvent,
    seconds: u64,
    attempts: u32,
}

impl LateWords {
    pub(super) fn of(news: &LateNews) -> Self {
        Self { event: news.event, seconds: news.age.as_secs(), attempts: news.attempts }
    }

    /// Returns the event as text: `joined, call 2 after 61s`.
    pub(super) fn text(self) -> String {
        format!("{}, call {} after {}s", self.event.name(), self.attempts, self.seconds)
    }
}

/// One call.
#[derive(Debug)]
pub(super) struct CallEntry {
    pub(super) number: u64,
    pub(super) route: Arc<RouteTotals>,
    pub(super) method: Box<str>,
    pub(super) tool: Option<Box<str>>,
    pub(super) id: Box<[u8]>,
    pub(super) token: Option<Box<[u8]>>,
    pub(super) opened: Instant,
    pub(super) masks: Masks,
    /// Whether the route only observes, so that the messages of the call are forwarded unchanged.
    pub(super) is_observed: bool,
    state: Mutex<CallState>,
    /// The number of changes to the entry.
    version: AtomicU64,
    /// The number of times that another filter has taken the call over.
    moves: AtomicUsize,
    /// Bytes of memory that the messages of all calls take.
    total: Arc<AtomicUsize>,
}

impl CallEntry {
    pub(super) fn new(
        number: u64,
        route: &Arc<RouteTotals>,
        call: &OpenCall<'_>,
        (masks, is_observed): (&Masks, bool),
        total: &Arc<AtomicUsize>,
    ) -> Self {
        let state = CallState { client: call.client.cloned(), ..CallState::default() };
        Self {
            number,
            route: Arc::clone(route),
            method: name(call.method),
            tool: call.tool.map(name),
            id: call.id.get(..NAME_MAX).unwrap_or(call.id).into(),
            token: call.token.map(|token| token.get(..NAME_MAX).unwrap_or(token).into()),
            opened: call.opened,
            masks: masks.clone(),
            is_observed,
            state: Mutex::new(state),
            version: AtomicU64::new(1),
            moves: AtomicUsize::new(0),
            total: Arc::clone(total),
        }
    }

    /// Returns the present state of the call.
    pub(super) fn state(&self) -> MutexGuard<'_, CallState> {
        lock(&self.state)
    }

    /// Returns a number that rises with each change.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether `call` of another filter is the call of this entry.
    pub(super) fn is(&self, call: &OpenCall<'_>) -> bool {
        // Each filter numbers calls itself, so the call is compared by its time and its id.
        self.opened == call.opened && *self.id == *call.id.get(..NAME_MAX).unwrap_or(call.id)
    }

    /// Notes that another filter continues the call. Returns the number of such changes.
    pub(super) fn take_over(&self) -> usize {
        self.moves.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes the filter that serves the call from now on, and its number for the call.
    pub(super) fn serve(&self, filter: &Arc<CancelInbox>, call: CallId) {
        self.state().served_by = Some((Arc::downgrade(filter), call));
    }

    /// Returns how many times another filter has taken the call over.
    pub(super) fn moves(&self) -> usize {
        self.moves.load(Ordering::Relaxed)
    }

    /// Whether `text` is the id of the call.
    pub(super) fn has_id(&self, text: &Bytes) -> bool {
        *self.id == **text
    }

    /// Whether `text` is the token of the call.
    pub(super) fn has_token(&self, text: &Bytes) -> bool {
        self.token.as_ref().is_some_and(|token| **token == **text)
    }

    /// Adds a message, and applies `change` to the state.
    pub(super) fn take(&self, kept: CapturedMessage, change: impl FnOnce(&mut CallState)) {
        let mut state = self.state();
        change(&mut state);
        state.keep(kept, &self.total);
        drop(state);
        // Raised after the change: a reader that sees the new number also sees the change.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Changes the state of the call.
    pub(super) fn change(&self, change: impl FnOnce(&mut CallState)) {
        change(&mut self.state());
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Drops the messages of the call, to make room for other calls.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        let forgotten = state.first.len() + state.last.len();
        state.left_out += forgotten as u64;
        (state.first, state.last) = (Vec::new(), VecDeque::new());
        self.total.fetch_sub(std::mem::take(&mut state.bytes), Ordering::Relaxed);
        drop(state);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the masking of secrets for messages of the call.
    pub(super) fn masking(&self) -> Masking {
        let mut masking = Masking::new(self.masks.clone());
        masking.spare(&self.id);
        if let Some(token) = &self.token {
            masking.spare(token);
        }
        masking
    }

    /// Returns the tool or else the method of the call.
    pub(super) fn label(&self) -> &str {
        self.tool.as_deref().unwrap_or(&self.method)
    }
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.total.fetch_sub(state.bytes, Ordering::Relaxed);
    }
}

impl CallState {
    fn keep(&mut self, kept: CapturedMessage, total: &AtomicUsize) {
        let (mut more, mut less) = (kept.bytes(), 0);
        // After `forget`, further messages are not the first of the call.
        if self.first.len() < FIRST_MAX && self.left_out == 0 {
            self.first.push(kept);
        } else {
            if self.last.len() >= LAST_MAX
                && let Some(old) = self.last.pop_front()
            {
                less = old.bytes();
                self.left_out += 1;
            }
            self.last.push_back(kept);
        }
        self.bytes = self.bytes + more - less;
        // The difference may be negative; wrapping addition gives the right sum.
        more = more.wrapping_sub(less);
        total.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts the verdict on progress, until the call's own summary exists.
    pub(super) fn count(&mut self, verdict: Verdict) {
        self.account.received += 1;
        match verdict {
            Verdict::Forwarded => self.account.sent += 1,
            Verdict::Repaired(repairs) => {
                self.account.sent += 1;
                for repair in repairs.iter() {
                    self.account.repaired.add(repair, 1);
                }
            }
            Verdict::Withheld(reason) => {
                self.account.withheld.add(reason, 1);
            }
        }
    }

    /// Notes a notification to the client.
    pub(super) fn told(&mut self, text: &Option<MessageText>) {
        if text.is_some() {
            self.words.clone_from(text);
        }
    }

    /// Notes that a notification to the client has a figure of its own.
    pub(super) fn told_figure(&mut self, text: &Option<MessageText>) {
        if text.is_some() {
            self.figure.clone_from(text);
        }
    }

    /// Ends the call, with its summary.
    pub(super) fn end(&mut self, at: Instant, ended: CallEnd, summary: Option<&Summary>) {
        // The first end counts. A call that was ended because the table was full gets its real end later.
        self.ended.get_or_insert((at, ended));
        if let Some(summary) = summary {
            // The filter's summary is complete, so it replaces the counts, which were only preliminary.
            self.account.clone_from(&summary.account);
            if self.client.is_none() {
                self.client.clone_from(&summary.client);
            }
        }
    }

    /// Returns the kept messages, oldest first.
    pub(super) fn messages(&self) -> impl Iterator<Item = &CapturedMessage> {
        self.first.iter().chain(&self.last)
    }
}

fn name(text: &str) -> Box<str> {
    let end = (0..=NAME_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or_default()).unwrap_or_default().into()
}

/// Returns the names of repairs, each with its count.
pub(super) fn repaired(account: &CallStats) -> impl Iterator<Item = (&'static str, u64)> {
    account.repaired.iter().map(|(repair, count)| (repair.name(), count))
}

pub(super) fn withheld(account: &CallStats) -> impl Iterator<Item = (&'static str, u64)> {
    account.withheld.iter().map(|(reason, count)| (reason.name(), count))
}
