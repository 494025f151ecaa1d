//! Spans of calls, exported to a collector of traces (OTLP, OpenTelemetry's protocol).
//!
//! A call becomes a span when it ends, encoded by whoever notes its end, and waits in a bounded queue
//! for a thread of its own, which sends many at once. Nobody waits for that thread but the end of the
//! process, and that not for long. A build without the feature `otlp` has none of it.

#[cfg(feature = "otlp")]
mod exporter;
#[cfg(feature = "otlp")]
mod protobuf;
#[cfg(feature = "otlp")]
pub mod settings;
#[cfg(feature = "otlp")]
mod span;
#[cfg(feature = "otlp")]
mod wire;
#[cfg(not(feature = "otlp"))]
mod without;

use std::time::Instant;

use crate::progress::{Reason, Repair};

#[cfg(feature = "otlp")]
pub use exporter::{Traces, counts, is_on, start, tell};
#[cfg(not(feature = "otlp"))]
pub use without::{Traces, counts, is_on, start, tell};

/// The version, and what this build has besides.
pub const VERSION: &str = if cfg!(feature = "otlp") {
    concat!(env!("CARGO_PKG_VERSION"), " (otlp)")
} else {
    env!("CARGO_PKG_VERSION")
};

/// How clients reach us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Standard input and output.
    Pipe,
    /// HTTP.
    Http,
}

/// Something that happened to messages about a call for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Instant,
    /// What.
    pub what: What,
}

/// What happens to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// One was withheld.
    Withheld(Reason),
    /// One was mended.
    Repaired(Repair),
}

/// How many spans there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that a collector has taken.
    pub exported: u64,
    /// Those that were left out: no room, no collector, or it did not take them.
    pub dropped: u64,
}
