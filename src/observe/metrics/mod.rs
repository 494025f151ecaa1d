//! Metrics in the text formats that Prometheus reads.
//!
//! Each part of the proxy has its own counters, so a message costs only a few relaxed additions, without a lock or a
//! look-up. Every set of labels is bounded: routes by the route file, reasons and repairs by their enums, clients by
//! the table of untokened clients. Tools are not a label, because a server may have any number of them.

mod config;
mod fleet;
mod limits;
mod route;
mod text_format;
mod traffic;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::observe::otlp;
use crate::observe::otlp::Counts;
use crate::observe::untokened_clients::UNTOKENED_CLIENTS;

pub use config::{Config, Reload};
pub use fleet::{FleetCounts, FleetEvent};
pub use limits::{ConnectionCounts, RouteLimit};
pub use route::{ChildGauge, RouteCounts, Tables};
pub use text_format::TextFormat;
pub use traffic::{MeteredIo, ServerNotice, Traffic};

/// Bounds of the histogram of call durations, in seconds.
const DURATIONS: [f64; 14] =
    [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 1800.0, 3600.0];

/// Bounds of the histogram of silences, in seconds. Typical clients give up after 10, 60 or 300 seconds.
const SILENCES: [f64; 11] = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0];

/// The results of exporting a span.
const SPANS: [&str; 2] = ["exported", "dropped"];

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge>;
type Histograms = Family<Labels, Histogram, Buckets>;

/// The buckets of a histogram.
#[derive(Debug, Clone)]
struct Buckets {
    bounds: &'static [f64],
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.bounds.iter().copied())
    }
}

/// All counts of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Families,
    clients: Traffic,
    without_token: Counters,
    refused: Counters,
    client_limit: Counters,
    connections: ConnectionCounts,
    fleet_requests: Counters,
    fleet_store_errors: Counter,
    idle_connections: Counter,
    forwarded_dropped: Counter,
    log_lines_dropped: Counter,
    config: Config,
    spans: [Counter; 2],
    uptime: Gauge,
    started: Instant,
    /// A lock that serialises scrapes, so that the gauges of two scrapes do not mix.
    scraping: Mutex<()>,
}

/// Registers metrics under their names.
struct Register {
    registry: Registry,
}

impl Register {
    fn counters(&mut self, name: &str, help: &str) -> Counters {
        let counters = Counters::default();
        self.registry.register(name, help, counters.clone());
        counters
    }

    fn counter(&mut self, name: &str, help: &str) -> Counter {
        let counter = Counter::default();
        self.registry.register(name, help, counter.clone());
        counter
    }

    fn bytes(&mut self, name: &str, help: &str) -> Counters {
        let counters = Counters::default();
        self.registry.register_with_unit(name, help, Unit::Bytes, counters.clone());
        counters
    }

    fn gauges(&mut self, name: &str, help: &str) -> Gauges {
        let gauges = Gauges::default();
        self.registry.register(name, help, gauges.clone());
        gauges
    }

    fn seconds(&mut self, name: &str, help: &str, buckets: &'static [f64]) -> Histograms {
        let histograms = Histograms::new_with_constructor(Buckets { bounds: buckets });
        self.registry.register_with_unit(name, help, Unit::Seconds, histograms.clone());
        histograms
    }
}

/// The metric families that each route has: the type, the kind, the name and the help.
macro_rules! families {
    ($($family:ident: $type:ty = $kind:ident($($argument:expr),+);)+) => {
        #[derive(Debug)]
        struct Families {
            $($family: $type,)+
        }

        impl Families {
            fn new(to: &mut Register) -> Self {
                Self { $($family: to.$kind($($argument),+),)+ }
            }
        }
    };
}

families! {
    calls: Counters = counters("calls",
        "Requests of clients that have ended, by method (tools/call or other) and outcome");
    in_flight: Gauges = gauges("calls_in_flight", "Requests of clients that wait for their answer");
    duration: Histograms = seconds("call_duration", "Durations of tool calls", &DURATIONS);
    first_progress: Histograms = seconds("first_progress",
        "Times from the begin of tool calls to their first progress notification", &SILENCES);
    longest_silence: Histograms = seconds("longest_silence",
        "The longest time without a notification in each tool call with a token", &SILENCES);
    messages: Counters = counters("server_messages",
        "Messages of servers, by verdict: forwarded unchanged, repaired, withheld");
    repairs: Counters = counters("repairs", "Repairs made in messages of servers, by repair");
    withheld: Counters = counters("withheld", "Messages of servers that were withheld, by reason");
    refused_messages: Counters = counters("messages_refused",
        "Messages of clients that were not passed on to the server, by rule");
    late_calls: Counters = counters("late_calls",
        "Events of calls whose work goes on after their clients gave them up (late), by event");
    tasks: Counters = counters("tasks", "Events of tasks of Milepost's own (tasks), by event");
    progress_received: Counters = counters("progress_received",
        "Progress notifications of servers about calls that have ended");
    text_lines: Counters = counters("overheard_lines",
        "Lines of text and logs that could be taken for progress of calls that have ended");
    progress_sent: Counters = counters("progress_sent",
        "Progress notifications that clients got for calls that have ended, by origin: server, \
        text, heartbeat, estimate (a heartbeat with an estimated figure)");
    route_limit: Counters = counters("route_limit",
        "Refusals of requests of routes that had as much as a route may, by limit: streams, sessions, children");
    refused_bodies: Counters = counters("bodies_refused",
        "Requests whose bodies were not taken, by reason");
    unread_requests: Counters = counters("unread_requests",
        "Requests of servers that were answered with an error because no client read them");
    dropped_mail: Counters = counters("dropped_mail",
        "Messages between streams of a session that were dropped because their client did not read");
    unspilled_answers: Counters = counters("unspilled_answers",
        "Large answers of servers in whose place clients got an error, because no file could take them");
    upgrades: Counters = counters("upgrades",
        "Requests that got a stream because the server had not answered in time");
    upstream_errors: Counters = counters("upstream_errors",
        "Failures of connections to servers and of servers, by kind");
    server_notices: Counters = counters("server_notices",
        "Facts about servers that make no request fail, by kind: redirected, closed-early, proxy, \
        proxy-unused, undecoded, token-file");
    server_received: Counters = bytes("server_received", "Bytes that servers have sent");
    server_sent: Counters = bytes("server_sent", "Bytes that were sent to servers");
    children: Gauges = gauges("children", "Servers running as child processes");
    child_starts: Counters = counters("child_starts", "Child processes that were started");
    child_restarts: Counters = counters("child_restarts",
        "Child processes that were started in place of a dead child process");
    sessions: Gauges = gauges("sessions", "Known sessions, by kind");
    streams: Gauges = gauges("streams", "Open streams and requests of clients");
    kept_messages: Gauges = gauges("kept_messages",
        "Messages kept for clients that have not read them or may resume");
    kept_bytes: Gauges = gauges("kept_bytes", "Bytes of the messages kept for clients");
}

impl Metrics {
    /// Returns metrics in which all counts are zero.
    pub fn new() -> Self {
        let mut to = Register { registry: Registry::with_prefix("milepost") };
        let families = Families::new(&mut to);
        let clients = Traffic {
            received: to
                .bytes("client_received", "Bytes that clients have sent, HTTP included")
                .get_or_create_owned(&Vec::new()),
            sent: to
                .bytes("client_sent", "Bytes that were sent to clients, HTTP included")
                .get_or_create_owned(&Vec::new()),
            notices: Arc::default(),
        };
        let without_token = to.counters(
            "calls_without_token",
            "Tool calls without a progress token, by client; other: beyond the first 64",
        );
        let refused = to.counters(
            "requests_refused",
            "Requests that were refused before a route saw them, by reason",
        );
        let client_limit = to.counters(
            "client_limit",
            "Refusals of clients that had as much as one client may, by limit",
        );
        let fleet_requests = to.counters(
            "fleet_requests",
            "Requests of sessions that may belong to another replica, by event: passed-on, received, \
            taken-over, lost, failed, loop",
        );
        let connections = ConnectionCounts::new(&to.counters(
            "connections_refused",
            "Connections of clients that were turned away, by reason: max_connections, descriptors",
        ));
        let help = "Failures of the store in which replicas settle who inherits sessions";
        let fleet_store_errors = to.counter("fleet_store_errors", help);
        let help = "Connections that were closed because no request was open on them for long";
        let idle_connections = to.counter("idle_connections_closed", help);
        let help =
            "Requests with values of X-Forwarded-*, Forwarded or principal that were left out";
        let forwarded_dropped = to.counter("forwarded_dropped", help);
        let help = "Log lines left out because nobody read standard error";
        let log_lines_dropped = to.counter("log_lines_dropped", help);
        let config = Config::new(&mut to);
        let spans =
            to.counters("spans", "Spans of calls, by result: exported to a collector, dropped");
        let spans = SPANS.map(|result| spans.get_or_create_owned(&vec![("result", result.into())]));
        let uptime = Gauge::default();
        let help = "Time since the begin of counting";
        to.registry.register_with_unit("uptime", help, Unit::Seconds, uptime.clone());
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        to.registry.register("build", "The version of the program", build);
        Self {
            registry: to.registry,
            families,
            clients,
            without_token,
            refused,
            client_limit,
            connections,
            fleet_requests,
            fleet_store_errors,
            idle_connections,
            forwarded_dropped,
            log_lines_dropped,
            config,
            spans,
            uptime,
            started: Instant::now(),
            scraping: Mutex::default(),
        }
    }

    /// Returns the counters of a route. The same path always gives the same counters.
    pub fn route(&self, path: &str) -> Arc<RouteCounts> {
        Arc::new(RouteCounts::new(&self.families, path))
    }

    /// Returns the metrics about the route file.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counts a refused request. `reason` is one of the names of refusals.
    pub fn count_refusal(&self, reason: &'static str) {
        // The family needs a lock and a look-up, which is acceptable because refusals are rare.
        self.refused.get_or_create(&vec![("reason", reason.to_owned())]).inc();
    }

    /// Returns the counter of refusals by this limit, which applies to each client.
    pub fn client_limit(&self, name: &'static str) -> Counter {
        self.client_limit.get_or_create_owned(&vec![("limit", name.to_owned())])
    }

    /// Returns the counters of connections that were turned away.
    pub(crate) fn connections(&self) -> &ConnectionCounts {
        &self.connections
    }

    /// Returns the counter of failures of a fleet's store.
    pub fn fleet_store_errors(&self) -> &Counter {
        &self.fleet_store_errors
    }

    /// Returns the counters of a replica's part in its fleet.
    pub fn fleet(&self) -> FleetCounts {
        FleetCounts::new(&self.fleet_requests)
    }

    /// Returns the counter of connections that were closed because they had no open request.
    pub(crate) fn idle_connections(&self) -> &Counter {
        &self.idle_connections
    }

    /// Counts a request of which `X-Forwarded-*` or `Forwarded` headers were removed.
    pub fn count_forwarded_dropped(&self) {
        self.forwarded_dropped.inc();
    }

    /// Returns the counters of bytes between clients and Milepost.
    pub fn clients(&self) -> &Traffic {
        &self.clients
    }

    /// Returns all metrics as text. `read` first sets the gauges that are computed for each scrape. `log_lines_dropped`
    /// is the number since the start.
    pub fn text(&self, log_lines_dropped: u64, read: impl FnOnce()) -> String {
        let _alone = self.scraping.lock().unwrap_or_else(PoisonError::into_inner);
        read();
        // Copy the values that are counted elsewhere. Messages would otherwise have to count them twice.
        for (client, count) in UNTOKENED_CLIENTS.without_token() {
            let counter = self.without_token.get_or_create_owned(&vec![("client", client)]);
            counter.inner().store(count, Ordering::Relaxed);
        }
        self.log_lines_dropped.inner().store(log_lines_dropped, Ordering::Relaxed);
        let Counts { exported, dropped } = otlp::counts();
        for (counter, count) in self.spans.iter().zip([exported, dropped]) {
            counter.inner().store(count, Ordering::Relaxed);
        }
        self.uptime.set(i64::try_from(self.started.elapsed().as_secs()).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Ignore the error: writing into a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
