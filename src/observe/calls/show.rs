//! Calls and messages as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use serde::Serialize;

use super::entry::{
    CallEnd, CallEntry, CallState, CapturedMessage, LateWords, MessageFate, repaired, withheld,
};
use super::text::MessageText;
use super::{RouteTotals, Sums, Table, lock};
use crate::observe::printable::printable_json;
use crate::observe::redact::Masking;
use crate::observe::transcript::words;
use crate::progress::Verdict;
use crate::progress::policy::masks::Masks;
use crate::protocol::json;
use crate::protocol::jsonrpc::Message;

/// Maximum number of bytes of a progress value that are shown to observers.
const FIGURE_MAX: usize = 64;

/// Maximum number of characters of a progress message that are shown to observers.
const WORDS_MAX: usize = 500;

/// The largest step that counts as a lift by Milepost. A larger step was given by the server.
const LIFT: f64 = 1e-3;

/// The same as [`LIFT`], for values below 1.
const LIFT_BELOW_ONE: f64 = 2e-6;

/// A route in its JSON form.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct RouteJson {
    route: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Box<str>>,
    open: i64,
    heartbeats: u64,
    #[serde(flatten)]
    sums: Sums,
}

/// A call in its JSON form.
#[derive(Debug, Serialize)]
pub(super) struct CallJson<'a> {
    n: u64,
    route: &'a str,
    method: &'a str,
    tool: Option<&'a str>,
    client: Option<String>,
    token: bool,
    observed: bool,
    opened: u64,
    ended: Option<u64>,
    outcome: Option<&'static str>,
    progress: Option<String>,
    total: Option<String>,
    message: Option<String>,
    spoke: Option<u64>,
    told: Option<u64>,
    received: u64,
    overheard: u64,
    sent: u64,
    heartbeats: u64,
    /// The earlier name of `heartbeats`, for observers that know only that name.
    beats: u64,
    repaired: BTreeMap<&'static str, u64>,
    withheld: BTreeMap<&'static str, u64>,
    messages: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<String>,
}

#[derive(Debug, Serialize)]
struct MessageJson {
    at: u64,
    #[serde(flatten)]
    fate: FateJson,
    before: Option<String>,
    after: Option<String>,
}

/// The verdict on a message: its name, and its text.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct FateJson {
    pub(super) what: &'static str,
    pub(super) why: Vec<&'static str>,
    pub(super) because: Vec<&'static str>,
}

#[derive(Serialize)]
struct DetailJson<'a> {
    call: CallJson<'a>,
    left_out: u64,
    messages: Vec<MessageJson>,
}

#[derive(Serialize)]
struct AllJson<'a> {
    now: u64,
    routes: Vec<RouteJson>,
    calls: Vec<CallJson<'a>>,
}

impl Table {
    /// Returns the whole table as one JSON object.
    pub fn json(&self) -> String {
        let all = self.all();
        let calls = all.iter().map(|entry| self.call(entry)).collect();
        text(&AllJson { now: self.ms(self.now()), routes: self.routes(&all), calls })
    }

    /// Returns one call with its messages as a JSON object; `None` if the call is unknown or no longer kept.
    pub fn call_json(&self, number: u64) -> Option<String> {
        let all = self.all();
        let entry = all.iter().find(|entry| entry.number == number)?;
        let mut masking = entry.masking();
        let state = entry.state();
        let (left_out, kept) = (state.left_out, state.messages().cloned().collect::<Vec<_>>());
        // Unlock before the slow search for secrets, because the call's messages must not wait for an observer.
        drop(state);
        let message = |kept: &CapturedMessage| MessageJson {
            at: millis(kept.at, entry.opened),
            fate: kept.fate.json(),
            before: kept.before.as_ref().map(|text| text.shown(&mut masking)),
            after: kept.after.as_ref().map(|text| text.shown(&mut masking)),
        };
        let messages = kept.iter().map(message).collect();
        Some(text(&DetailJson { call: self.call(entry), left_out, messages }))
    }

    pub(super) fn call<'a>(&self, entry: &'a CallEntry) -> CallJson<'a> {
        let state = entry.state();
        let (ended, outcome) = state.ended.unzip();
        let CallState { account, client, figure, words, .. } = &*state;
        let read = |text: &Option<MessageText>| {
            text.as_ref().map(|text| figure_in(text, &entry.masks)).unwrap_or_default()
        };
        let ShownProgress { progress, total, .. } = read(figure);
        let message = read(words).message;
        CallJson {
            n: entry.number,
            route: &entry.route.name,
            method: &entry.method,
            tool: entry.tool.as_deref(),
            client: client.as_ref().map(|client| client.to_string()),
            token: entry.token.is_some(),
            observed: entry.is_observed,
            opened: self.ms(entry.opened),
            ended: ended.map(|at| self.ms(at)),
            outcome: outcome.map(CallEnd::name),
            progress,
            total,
            message,
            spoke: state.last_received.map(|at| self.ms(at)),
            told: state.last_sent.map(|at| self.ms(at)),
            received: account.received,
            overheard: account.read_from_text,
            sent: account.sent,
            heartbeats: account.beats,
            beats: account.beats,
            repaired: by_name(&mut repaired(account)),
            withheld: by_name(&mut withheld(account)),
            messages: state.first.len() + state.last.len(),
            late: state.late.map(LateWords::text),
        }
    }

    /// Returns the totals of each route, including open calls.
    pub(super) fn routes(&self, all: &[Arc<CallEntry>]) -> Vec<RouteJson> {
        let routes = lock(&self.known).routes.clone();
        let shown = |one: &Arc<RouteTotals>| {
            let mut sums = *lock(&one.ended);
            // Ended calls are in the sums already, so only open calls are added.
            for entry in all.iter().filter(|entry| Arc::ptr_eq(&entry.route, one)) {
                let state = entry.state();
                if state.ended.is_none() {
                    sums.add(&state.account);
                }
            }
            let (route, open) = (one.name.clone(), one.open.load(Ordering::Relaxed));
            let server = one.server.get().cloned();
            RouteJson { route, server, open, heartbeats: sums.beats, sums }
        };
        routes.iter().map(shown).collect()
    }
}

impl MessageFate {
    pub(super) fn json(self) -> FateJson {
        let (what, why, because) = match self {
            Self::Request => ("request", Vec::new(), Vec::new()),
            Self::ClientMessage => ("said", Vec::new(), Vec::new()),
            Self::Stderr => ("overheard", Vec::new(), Vec::new()),
            Self::Answer(verdict) => ("answer", names(verdict), reasons(verdict)),
            Self::ServerMessage(verdict) => {
                (words::kind(verdict), names(verdict), reasons(verdict))
            }
            Self::Heartbeat => ("added", vec!["heartbeat"], vec![words::BEAT]),
            Self::FromText => ("added", vec!["text"], vec![words::FROM_TEXT]),
            Self::Own(ended) => ("added", vec![ended.name()], vec![words::OWN_ANSWER]),
            Self::End(ended) => ("ended", vec![ended.name()], Vec::new()),
        };
        FateJson { what, why, because }
    }
}

fn by_name(counts: &mut dyn Iterator<Item = (&'static str, u64)>) -> BTreeMap<&'static str, u64> {
    counts.collect()
}

fn names(verdict: Verdict) -> Vec<&'static str> {
    match verdict {
        Verdict::Forwarded => Vec::new(),
        Verdict::Repaired(repairs) => repairs.iter().map(|repair| repair.name()).collect(),
        Verdict::Withheld(reason) => vec![reason.name()],
    }
}

fn reasons(verdict: Verdict) -> Vec<&'static str> {
    match verdict {
        Verdict::Forwarded => Vec::new(),
        Verdict::Repaired(repairs) => repairs.iter().map(words::repair_text).collect(),
        Verdict::Withheld(reason) => vec![words::reason_text(reason)],
    }
}

/// The values of a call's progress that observers are shown.
#[derive(Debug, Default, PartialEq, Eq)]
struct ShownProgress {
    progress: Option<String>,
    total: Option<String>,
    message: Option<String>,
}

/// Reads the progress values in a notification, whatever its form.
fn figure_in(text: &MessageText, masks: &Masks) -> ShownProgress {
    let message = Message::parse(Bytes::copy_from_slice(&text.closed()));
    let params = message.params().unwrap_or_default();
    let words = |name| {
        let text = json::member(&params, name)?;
        let words = json::decode_str(&text).unwrap_or_else(|| String::from_utf8_lossy(&text));
        Some(words.into_owned()).filter(|words| words != "null")
    };
    let number = |name| words(name).map(|words| cut(words, FIGURE_MAX));
    let message = words("message").map(|words| cut(masks.mask(&words).into_owned(), WORDS_MAX));
    ShownProgress { progress: number("progress"), total: number("total"), message }
}

/// Whether a notification has a value that the server gave, and not only the smallest step above the value in the
/// notification before.
pub(super) fn is_figure(before: &Option<MessageText>, sent: &Option<MessageText>) -> bool {
    let value = |text: &Option<MessageText>| {
        let text = text.as_ref()?.closed();
        let params = Message::parse(Bytes::from(text)).params()?;
        json::number(&json::member(&params, "progress")?)
    };
    let (before, Some(value)) = (value(before).unwrap_or_default(), value(sent)) else {
        return false;
    };
    let step = if value < 1.0 { LIFT_BELOW_ONE } else { LIFT };
    value - before > step || value.fract() == 0.0 && value > before
}

fn cut(mut words: String, max: usize) -> String {
    if let Some((at, _)) = words.char_indices().nth(max) {
        words.truncate(at);
        words.push('…');
    }
    words
}

/// Returns the text of a message without secrets.
pub(super) fn shown(text: Option<&MessageText>, masking: &mut Masking) -> Option<String> {
    text.map(|text| text.shown(masking))
}

pub(super) fn millis(at: Instant, since: Instant) -> u64 {
    at.saturating_duration_since(since).as_millis().try_into().unwrap_or(u64::MAX)
}

/// Serialises a value as JSON. The value's type must always have a JSON form.
pub(super) fn text(shown: &impl Serialize) -> String {
    printable_json(shown)
}
