//! The loads, which the clients put on the server.

use std::time::Duration;

use crate::client::Ask;

/// Number of events of one call in a flood.
const FLOOD: u64 = 100_000;
/// For how long paced streams are measured.
const PACED: Duration = Duration::from_millis(2200);

/// What every client of a load does.
#[derive(Clone)]
pub(crate) enum Pace {
    /// Makes this number of calls, one after the other.
    Closed(usize),
    /// Makes one call in each first duration, for the second duration.
    Open(Duration, Duration),
    /// Makes one call. After all calls have begun, their cost is measured for this time.
    Streams(Duration),
}

/// A load.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// The unit by which CPU time is divided.
    pub(crate) unit: &'static str,
    pub(crate) path: &'static str,
    pub(crate) sessions: bool,
    pub(crate) clients: usize,
    pub(crate) pace: Pace,
    pub(crate) ask: Ask,
    /// Number of notifications of one call.
    pub(crate) events: u64,
}

/// Returns all loads.
pub(crate) fn all() -> Vec<Load> {
    requests().into_iter().chain(paced()).chain(floods()).collect()
}

fn small() -> Load {
    Load {
        name: "json",
        what: "32 connections, one small request after the other on each",
        unit: "request",
        path: "/mcp",
        sessions: false,
        clients: 32,
        pace: Pace::Closed(250),
        ask: Ask::new("small"),
        events: 0,
    }
}

fn requests() -> [Load; 5] {
    let every = Duration::from_millis(32);
    [
        small(),
        Load { name: "json-sessions", what: "the same in 32 sessions", sessions: true, ..small() },
        Load {
            name: "latency",
            what: "1,000 small requests a second over 32 connections",
            pace: Pace::Open(every, Duration::from_secs(2)),
            ..small()
        },
        Load {
            name: "big",
            what: "JSON answers of 10 MB, 2 connections",
            unit: "answer",
            clients: 2,
            pace: Pace::Closed(10),
            ask: Ask::new("big"),
            ..small()
        },
        Load {
            name: "big-sse",
            what: "the same as one event of a stream, in chunks of 64 KB",
            unit: "answer",
            clients: 2,
            pace: Pace::Closed(10),
            ask: Ask::new("big-sse"),
            ..small()
        },
    ]
}

fn paced() -> [Load; 3] {
    let (events, bursts) = (125, 50);
    let burst = |name, what, form| Load {
        name,
        what,
        unit: "event",
        clients: 50,
        pace: Pace::Streams(PACED),
        ask: Ask::timed(form, 20, 32, bursts * 32),
        events: bursts * 32,
        ..small()
    };
    let own = "50 streams of compliant progress, 20 writes of 32 events a second on each";
    let every = "the same of progress that has to be rewritten; milepost with min_interval = 0";
    [
        Load {
            name: "paced",
            what: "200 streams with 50 events a second each, one event a segment",
            unit: "event",
            clients: 200,
            pace: Pace::Streams(PACED),
            ask: Ask::timed("own", 50, 1, events),
            events,
            ..small()
        },
        burst("burst32", own, "own"),
        Load { path: "/every", ..burst("burst32-every", every, "wrong") },
    ]
}

fn floods() -> [Load; 5] {
    let flood = |name, what, form, in_chunk| Load {
        name,
        what,
        unit: "event",
        clients: 4,
        pace: Pace::Closed(1),
        ask: Ask::flood(form, FLOOD, in_chunk, 32),
        events: FLOOD,
        ..small()
    };
    let wrong = "the same of progress that has to be rewritten; milepost thins it";
    let every = "the same; milepost with min_interval = 0 rewrites every one";
    let chunks = "compliant progress, one event a chunk, 32 chunks a write";
    [
        flood("flood32", "4 streams of compliant progress, 32 events a write", "own", 32),
        flood("flood32-logs", "the same of log messages", "log", 32),
        flood("flood32-wrong", wrong, "wrong", 32),
        Load { path: "/every", ..flood("flood32-every", every, "wrong", 32) },
        flood("chunk1", chunks, "own", 1),
    ]
}
