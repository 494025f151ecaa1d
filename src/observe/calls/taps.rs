//! The observers of `/tap`. Each of them receives every message that its filter accepts.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use super::entry::{CallEntry, CapturedMessage, MessageFate};
use super::show::{FateJson, shown, text};
use super::{Look, RouteTotals, Table, lock};
use crate::observe::redact::Masking;
use crate::observe::transcript::{escape, words};
use crate::progress::policy::masks::Masks;

/// Maximum number of messages that wait for one observer of `/tap`. Further messages are left out and counted.
const WAITING_MAX: usize = 1024;

/// Maximum number of routes with separate masks for one observer of `/tap`. Beyond the limit all masks are forgotten,
/// so their numbers begin again.
const MASKINGS_MAX: usize = 64;

/// Selects the messages that an observer gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TapFilter {
    /// Only messages of this route.
    pub route: Option<String>,
    /// Only messages of calls of this tool.
    pub tool: Option<String>,
    /// Only messages with this verdict: `forwarded`, `repaired`, `withheld`, `added`, or the name
    /// of a reason or a repair.
    pub verdict: Option<String>,
    /// Whether messages are written as JSON objects.
    pub json: bool,
}

/// A message for the observers of `/tap`.
#[derive(Debug)]
pub(super) struct TapMessage<'a> {
    /// The time in milliseconds since 1970 ([`Table::ms`]).
    pub(super) at: u64,
    pub(super) route: &'a Arc<RouteTotals>,
    pub(super) masks: &'a Masks,
    pub(super) call: Option<&'a CallEntry>,
    pub(super) kept: &'a CapturedMessage,
}

/// A message that waits for an observer.
#[derive(Debug)]
struct TapLine {
    at: u64,
    route: Arc<RouteTotals>,
    masks: Masks,
    call: Option<(u64, Box<str>)>,
    kept: CapturedMessage,
}

#[derive(Serialize)]
struct LineJson<'a> {
    at: u64,
    route: &'a str,
    call: Option<u64>,
    tool: Option<&'a str>,
    #[serde(flatten)]
    fate: FateJson,
    before: Option<String>,
    after: Option<String>,
}

#[derive(Debug, Default)]
struct TapQueue {
    lines: VecDeque<TapLine>,
    left_out: u64,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct SharedTap {
    filter: TapFilter,
    queue: Mutex<TapQueue>,
}

/// All observers of `/tap`.
#[derive(Debug, Default)]
pub struct Taps {
    count: AtomicUsize,
    all: RwLock<Vec<Weak<SharedTap>>>,
}

/// An observer of `/tap`, and its reading end.
#[derive(Debug)]
pub struct TapReader {
    table: Arc<Table>,
    _look: Look,
    shared: Arc<SharedTap>,
    /// The masking of secrets for each route.
    maskings: BTreeMap<Box<str>, Masking>,
}

impl TapMessage<'_> {
    fn line(&self) -> TapLine {
        TapLine {
            at: self.at,
            route: Arc::clone(self.route),
            masks: self.masks.clone(),
            call: self.call.map(|call| (call.number, call.label().into())),
            kept: self.kept.clone(),
        }
    }
}

impl TapFilter {
    fn wants(&self, tapped: &TapMessage<'_>) -> bool {
        let tool = tapped.call.and_then(|call| call.tool.as_deref());
        let is = |wanted: &Option<String>, given: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == given)
        };
        is(&self.route, Some(&tapped.route.name))
            && is(&self.tool, tool)
            && self.verdict.as_deref().is_none_or(|verdict| {
                let fate = tapped.kept.fate;
                let FateJson { what, why, .. } = fate.json();
                let of_answer =
                    || matches!(fate, MessageFate::Answer(it) if words::kind(it) == verdict);
                what == verdict || why.contains(&verdict) || of_answer()
            })
    }
}

impl Taps {
    /// Whether there is an observer.
    pub(super) fn any(&self) -> bool {
        // An observer that connects at this moment may miss a message, which is acceptable.
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Sends a message to all observers whose filter accepts it.
    pub(super) fn publish(&self, tapped: &TapMessage<'_>) {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        for tap in all.iter().filter_map(Weak::upgrade).filter(|tap| tap.filter.wants(tapped)) {
            let mut queue = lock(&tap.queue);
            if queue.lines.len() < WAITING_MAX {
                queue.lines.push_back(tapped.line());
            } else {
                queue.left_out += 1;
            }
            let waker = queue.waker.take();
            // Unlock before waking the reader, which needs this lock immediately.
            drop(queue);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Weak<SharedTap>>)) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|tap| tap.strong_count() > 0);
        change(&mut all);
        self.count.store(all.len(), Ordering::Relaxed);
    }
}

impl TapReader {
    /// Begins to observe messages.
    pub fn begin(table: &Arc<Table>, filter: TapFilter) -> Self {
        let shared = Arc::new(SharedTap { filter, queue: Mutex::default() });
        table.taps.change(|all| all.push(Arc::downgrade(&shared)));
        let (table, look) = (Arc::clone(table), Look::begin(table));
        Self { table, _look: look, shared, maskings: BTreeMap::new() }
    }

    /// Returns the waiting messages as text, up to the message that reaches `max` bytes.
    pub fn poll(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<String> {
        let mut out = String::new();
        loop {
            let mut queue = lock(&self.shared.queue);
            let Some(line) = queue.lines.pop_front() else {
                // Reported after the waiting lines, because the messages were left out after these had arrived.
                let left_out = std::mem::take(&mut queue.left_out);
                if left_out == 0 && out.is_empty() {
                    queue.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                drop(queue);
                self.left_out(left_out, &mut out);
                return Poll::Ready(out);
            };
            drop(queue);
            self.show(&line, &mut out);
            if out.len() >= max {
                return Poll::Ready(out);
            }
        }
    }

    fn left_out(&self, lines: u64, out: &mut String) {
        let _ = match lines {
            0 => Ok(()),
            lines if self.shared.filter.json => writeln!(out, r#"{{"left_out":{lines}}}"#),
            lines => writeln!(out, "# {lines} lines left out"),
        };
    }

    fn show(&mut self, line: &TapLine, out: &mut String) {
        let TapLine { at, route, masks, call, kept } = line;
        if self.maskings.len() >= MASKINGS_MAX && !self.maskings.contains_key(&route.name) {
            // Limit the number of maskings, because a changing route file can have any number of routes over time.
            self.maskings.clear();
        }
        let begin = || Masking::new(masks.clone());
        let masking = self.maskings.entry(route.name.clone()).or_insert_with(begin);
        if let (MessageFate::Request | MessageFate::ClientMessage, Some(text)) =
            (kept.fate, &kept.before)
        {
            // Servers repeat an id or a token in members whose names look like those of secrets, so learn them first.
            masking.learn_names(&bytes::Bytes::copy_from_slice(&text.closed()));
        }
        let before = shown(kept.before.as_ref(), masking);
        let after = shown(kept.after.as_ref(), masking);
        let fate = kept.fate.json();
        if self.shared.filter.json {
            let (n, tool) = call.as_ref().map(|(n, tool)| (*n, &**tool)).unzip();
            let route = &*route.name;
            let line = LineJson { at: *at, route, call: n, tool, fate, before, after };
            let _ = writeln!(out, "{}", text(&line));
            return;
        }
        let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(*at));
        let of = match call {
            Some((number, label)) => format!(" call {number} {}", escape(label.as_bytes())),
            None => String::new(),
        };
        let _ = writeln!(out, "# {time} {}{of}", escape(route.name.as_bytes()));
        let write = |out: &mut String, sign: char, text: &Option<String>| {
            if let Some(text) = text {
                let _ = writeln!(out, "{sign} {}", escape(text.as_bytes()));
            }
        };
        let (sign, changed) = match kept.fate {
            MessageFate::Request | MessageFate::ClientMessage => ('>', '^'),
            MessageFate::Stderr => ('2', '='),
            _ => ('<', '='),
        };
        write(out, sign, &before);
        let _ = match kept.fate {
            MessageFate::Request | MessageFate::ClientMessage | MessageFate::Stderr => Ok(()),
            MessageFate::End(ended) => writeln!(out, "~ {}", ended.name()),
            MessageFate::Answer(verdict) | MessageFate::ServerMessage(verdict) => {
                writeln!(out, "    {}", words::verdict_text(verdict))
            }
            MessageFate::Heartbeat | MessageFate::FromText | MessageFate::Own(_) => {
                let (why, because) = (fate.why.join(", "), fate.because.join("; "));
                writeln!(out, "    added: {why}, {because}")
            }
        };
        write(out, changed, &after);
    }
}

impl Drop for TapReader {
    fn drop(&mut self) {
        let own = Arc::downgrade(&self.shared);
        self.table.taps.change(|all| all.retain(|tap| !tap.ptr_eq(&own)));
    }
}
