//! Counts of requests and connections that are refused because a limit is reached.

use prometheus_client::metrics::counter::Counter;

use super::Counters;

/// A limit of a route beyond which requests are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteLimit {
    /// Open streams.
    Streams,
    /// Sessions of a server that is not a child.
    Sessions,
    /// Running children.
    Children,
}

impl RouteLimit {
    /// Every limit once.
    pub(crate) const ALL: [Self; 3] = [Self::Streams, Self::Sessions, Self::Children];

    /// The name in metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Sessions => "sessions",
            Self::Children => "children",
        }
    }
}

/// Counts connections of clients that were turned away. The default belongs to no metric.
#[derive(Debug, Clone, Default)]
pub struct ConnectionCounts {
    /// As many connections were open as may.
    pub(crate) over_limit: Counter,
    /// Only the descriptors reserved for operators were left.
    pub(crate) without_descriptor: Counter,
}

impl ConnectionCounts {
    pub(super) fn new(counters: &Counters) -> Self {
        let of = |reason: &str| counters.get_or_create_owned(&vec![("reason", reason.to_owned())]);
        Self { over_limit: of("max_connections"), without_descriptor: of("descriptors") }
    }
}
