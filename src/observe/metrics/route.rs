//! Metrics of one route.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::{Counters, Families, Labels, RouteLimit, ServerNotice, Traffic};
use crate::progress::{
    FilterEvent, LateEvent, Outcome, Reason, RefusalRule, Repair, Summary, TaskEvent, Verdict,
};

/// The methods that are counted separately.
const METHODS: [&str; 2] = ["tools/call", "other"];

/// The verdicts on messages.
const VERDICTS: [&str; 3] = ["forwarded", "repaired", "withheld"];

/// The origins of progress.
const ORIGINS: [&str; 4] = ["server", "text", "heartbeat", "estimate"];

/// The kinds of errors of servers.
const ERRORS: [&str; 13] = [
    "connect",
    "connect-timeout",
    "local",
    "proxy",
    "streams-full",
    "http",
    "compressed",
    "idle",
    "child",
    "endpoint",
    "redirected",
    "credential",
    "not-found",
];

/// The reasons why request bodies are refused.
const BODIES: [&str; 9] = [
    "too-large",
    "paused",
    "too-long",
    "too-slow",
    "no-room",
    "full",
    "client-full",
    "unreadable",
    "not-kept",
];

/// The kinds of sessions: of HTTP servers, of the bridge, and the streams of HTTP+SSE.
const SESSIONS: [&str; 3] = ["server", "own", "wire"];

/// One counter for each value of a label.
#[derive(Debug)]
struct Each<const N: usize> {
    counters: [Counter; N],
}

impl<const N: usize> Each<N> {
    fn new(family: &Counters, labels: &Labels, label: &'static str, values: [&str; N]) -> Self {
        Self {
            counters: values.map(|value| {
                let mut labels = labels.clone();
                labels.push((label, value.to_owned()));
                family.get_or_create_owned(&labels)
            }),
        }
    }

    fn add(&self, place: usize, count: u64) {
        if let Some(counter) = self.counters.get(place) {
            counter.inc_by(count);
        }
    }
}

/// The counters of one route.
#[derive(Debug)]
pub struct RouteCounts {
    path: Box<str>,
    calls: [Each<12>; 2],
    in_flight: Gauge,
    duration: Histogram,
    first_progress: Histogram,
    longest_silence: Histogram,
    messages: Each<3>,
    repairs: Each<17>,
    withheld: Each<20>,
    refused: Each<3>,
    late_calls: Each<9>,
    tasks: Each<7>,
    progress_received: Counter,
    text_lines: Counter,
    progress_sent: Each<4>,
    limits: Each<{ RouteLimit::ALL.len() }>,
    refused_bodies: Each<9>,
    unread_requests: Counter,
    dropped_mail: Counter,
    unspilled_answers: Counter,
    upgrades: Counter,
    upstream_errors: Each<13>,
    traffic: Traffic,
    children: Gauge,
    child_starts: Counter,
    child_restarts: Counter,
    sessions: [Gauge; 3],
    streams: Gauge,
    kept_messages: Gauge,
    kept_bytes: Gauge,
}

/// The sizes of a route's tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tables {
    /// The numbers of sessions of HTTP servers, of sessions of the bridge, and of streams of HTTP+SSE.
    pub sessions: [usize; 3],
    /// Number of open streams and requests.
    pub streams: usize,
    /// Number of messages that wait for a client to take them.
    pub kept_messages: usize,
    /// Number of bytes of the waiting messages.
    pub kept_bytes: usize,
}

impl std::ops::AddAssign for Tables {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.sessions.iter_mut().zip(other.sessions) {
            *sum += more;
        }
        self.streams += other.streams;
        self.kept_messages += other.kept_messages;
        self.kept_bytes += other.kept_bytes;
    }
}

impl RouteCounts {
    /// Returns the path of the route.
    pub fn route(&self) -> &str {
        &self.path
    }

    pub(super) fn new(of: &Families, path: &str) -> Self {
        let labels: Labels = vec![("route", path.to_owned())];
        let with = |name, value: &str| {
            let mut labels = labels.clone();
            labels.push((name, value.to_owned()));
            labels
        };
        let calls = |method| {
            let names = Outcome::ALL.map(Outcome::name);
            Each::new(&of.calls, &with("method", method), "outcome", names)
        };
        Self {
            path: path.into(),
            calls: METHODS.map(calls),
            in_flight: of.in_flight.get_or_create_owned(&labels),
            duration: of.duration.get_or_create_owned(&labels),
            first_progress: of.first_progress.get_or_create_owned(&labels),
            longest_silence: of.longest_silence.get_or_create_owned(&labels),
            messages: Each::new(&of.messages, &labels, "verdict", VERDICTS),
            repairs: Each::new(&of.repairs, &labels, "repair", Repair::ALL.map(Repair::name)),
            withheld: Each::new(&of.withheld, &labels, "reason", Reason::ALL.map(Reason::name)),
            refused: Each::new(
                &of.refused_messages,
                &labels,
                "rule",
                RefusalRule::ALL.map(RefusalRule::name),
            ),
            late_calls: Each::new(
                &of.late_calls,
                &labels,
                "event",
                LateEvent::ALL.map(LateEvent::name),
            ),
            tasks: Each::new(&of.tasks, &labels, "event", TaskEvent::ALL.map(TaskEvent::name)),
            progress_received: of.progress_received.get_or_create_owned(&labels),
            text_lines: of.text_lines.get_or_create_owned(&labels),
            progress_sent: Each::new(&of.progress_sent, &labels, "origin", ORIGINS),
            limits: Each::new(
                &of.route_limit,
                &labels,
                "limit",
                RouteLimit::ALL.map(RouteLimit::name),
            ),
            refused_bodies: Each::new(&of.refused_bodies, &labels, "reason", BODIES),
            unread_requests: of.unread_requests.get_or_create_owned(&labels),
            dropped_mail: of.dropped_mail.get_or_create_owned(&labels),
            unspilled_answers: of.unspilled_answers.get_or_create_owned(&labels),
            upgrades: of.upgrades.get_or_create_owned(&labels),
            upstream_errors: Each::new(&of.upstream_errors, &labels, "kind", ERRORS),
            traffic: Traffic {
                received: of.server_received.get_or_create_owned(&labels),
                sent: of.server_sent.get_or_create_owned(&labels),
                notices: Arc::new(ServerNotice::ALL.map(|notice| {
                    of.server_notices.get_or_create_owned(&with("kind", notice.name()))
                })),
            },
            children: of.children.get_or_create_owned(&labels),
            child_starts: of.child_starts.get_or_create_owned(&labels),
            child_restarts: of.child_restarts.get_or_create_owned(&labels),
            sessions: SESSIONS.map(|kind| of.sessions.get_or_create_owned(&with("kind", kind))),
            streams: of.streams.get_or_create_owned(&labels),
            kept_messages: of.kept_messages.get_or_create_owned(&labels),
            kept_bytes: of.kept_bytes.get_or_create_owned(&labels),
        }
    }

    /// Counts one event. The connection counts open requests ([`RouteCounts::in_flight`]), as they end with it.
    pub fn note(&self, record: &FilterEvent) {
        match record {
            FilterEvent::Message { verdict, .. } => self.note_verdict(*verdict, 1),
            FilterEvent::Call(call) => self.ended(call),
            FilterEvent::Refused(rule) => self.refuse(*rule),
            FilterEvent::Late(news) => self.late_calls.add(news.event as usize, 1),
            FilterEvent::Task(news) => self.tasks.add(news.event as usize, 1),
            FilterEvent::Opened(_)
            | FilterEvent::TakenOver(_)
            | FilterEvent::UnansweringError(_)
            | FilterEvent::Heartbeat(_) => {}
        }
    }

    /// Counts a verdict on `times` messages.
    pub fn note_verdict(&self, verdict: Verdict, times: u64) {
        match verdict {
            Verdict::Forwarded => self.messages.add(0, times),
            Verdict::Repaired(repairs) => {
                self.messages.add(1, times);
                for repair in repairs.iter() {
                    self.repairs.add(repair as usize, times);
                }
            }
            Verdict::Withheld(reason) => {
                self.messages.add(2, times);
                self.withheld.add(reason as usize, times);
            }
        }
    }

    /// Counts a client message that was refused by this rule.
    pub fn refuse(&self, rule: RefusalRule) {
        self.refused.add(rule as usize, 1);
    }

    fn ended(&self, call: &Summary) {
        let [tools, others] = &self.calls;
        let calls = if call.tool.is_some() { tools } else { others };
        calls.add(call.outcome as usize, 1);
        let account = &call.account;
        self.progress_received.inc_by(account.received);
        self.text_lines.inc_by(account.read_from_text);
        // `sent` counts all progress to the client; heartbeats and progress from text are parts of it.
        let added = account.beats + account.sent_from_text;
        let origins = [
            account.sent.saturating_sub(added),
            account.sent_from_text,
            account.beats.saturating_sub(account.estimates),
            account.estimates,
        ];
        for (place, count) in origins.into_iter().enumerate() {
            self.progress_sent.add(place, count);
        }
        if call.tool.is_none() {
            return;
        }
        let since = |at: std::time::Instant| at.saturating_duration_since(call.opened);
        self.duration.observe(since(call.ended).as_secs_f64());
        if let Some(first) = call.first_sent {
            self.first_progress.observe(since(first).as_secs_f64());
        }
        if call.token.is_some() {
            self.longest_silence.observe(call.silence.as_secs_f64());
        }
    }

    /// Adds `more`, which may be negative, to the number of unanswered requests.
    pub fn in_flight(&self, more: i64) {
        self.in_flight.inc_by(more);
    }

    /// Counts a request that was refused because the route has reached this limit.
    pub fn count_full(&self, limit: RouteLimit) {
        self.limits.add(limit as usize, 1);
    }

    /// Counts a refused request body. `reason` is `too-large`, `paused`, `too-long`, `too-slow`, `no-room`,
    /// `unreadable` or `not-kept`.
    pub fn refuse_body(&self, reason: &str) {
        if let Some(place) = BODIES.iter().position(|known| *known == reason) {
            self.refused_bodies.add(place, 1);
        }
    }

    /// Counts a request of the server that got an error because no client read it.
    pub fn count_unread_request(&self) {
        self.unread_requests.inc();
    }

    /// Counts a message between the streams of a session that was dropped because no client read it.
    pub fn count_dropped_mail(&self) {
        self.dropped_mail.inc();
    }

    /// Counts a large answer in place of which the client got an error, because no file could take it.
    pub fn count_unspilled_answer(&self) {
        self.unspilled_answers.inc();
    }

    /// Counts an answer that became a stream.
    pub fn record_upgrade(&self) {
        self.upgrades.inc();
    }

    /// Counts a failure of the server, which is one of `connect`, `connect-timeout`, `local`, `proxy`, `streams-full`,
    /// `http`, `compressed`, `idle`, `child`, `endpoint`, `redirected`, `credential`, `not-found`.
    pub fn upstream_error(&self, kind: &str) {
        if let Some(place) = ERRORS.iter().position(|known| *known == kind) {
            self.upstream_errors.add(place, 1);
        }
    }

    /// Returns the counters of bytes between the server and Milepost.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Counts a started child, which runs until the returned gauge is dropped.
    pub fn record_child_start(self: &Arc<Self>) -> ChildGauge {
        self.child_starts.inc();
        self.children.inc();
        ChildGauge { counts: Arc::clone(self) }
    }

    /// Counts a child that replaces a child which has died.
    pub fn record_child_restart(&self) {
        self.child_restarts.inc();
    }

    /// Sets the gauges that are computed for each scrape.
    pub fn tables(&self, tables: Tables) {
        let set = |gauge: &Gauge, count| gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        for (gauge, count) in self.sessions.iter().zip(tables.sessions) {
            set(gauge, count);
        }
        set(&self.streams, tables.streams);
        set(&self.kept_messages, tables.kept_messages);
        set(&self.kept_bytes, tables.kept_bytes);
    }
}

/// Counts a running child until it is dropped.
#[derive(Debug)]
pub struct ChildGauge {
    counts: Arc<RouteCounts>,
}

impl Drop for ChildGauge {
    fn drop(&mut self) {
        self.counts.children.dec();
    }
}
