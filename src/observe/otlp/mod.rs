//! Traces: each call as a span that OpenTelemetry's SDK sends to a collector (OTLP over HTTP).
//!
//! A call becomes a span when it ends. The SDK's batch processor has a bounded queue of spans, and a separate thread
//! exports them. Calls do not wait for that thread; the end of the process waits for a short time. The layers above
//! provide the HTTP client, because this layer makes no connections.

mod exporter;
pub mod settings;
mod span;

use std::time::Instant;

use crate::progress::{Reason, Repair};

pub use exporter::{Traces, counts, is_on, record, start};

/// The transport between clients and the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownstreamTransport {
    /// Standard input and output.
    Pipe,
    /// HTTP.
    Http,
}

/// The first message of a call that was withheld or repaired for a certain reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanMark {
    /// The time.
    pub at: Instant,
    /// The event.
    pub event: SpanEvent,
}

/// An event of a span about a message of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanEvent {
    /// A message was withheld.
    Withheld(Reason),
    /// A message was repaired.
    Repaired(Repair),
}

/// The counts of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of spans that a collector accepted.
    pub exported: u64,
    /// The number of dropped spans: the queue was full, or the collector was unreachable or refused them.
    pub dropped: u64,
}
