//! Counts of requests and connections that are refused because a limit is reached.

use prometheus_client::metrics::counter::Counter;

use super::Counters;

/// A limit of a route beyond which requests are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteLimit {
    /// The number of open streams.
    Streams,
    /// The number of sessions of a server that is not a child.
    Sessions,
    /// The number of running children.
    Children,
}

impl RouteLimit {
    /// All limits.
    pub(crate) const ALL: [Self; 3] = [Self::Streams, Self::Sessions, Self::Children];

    /// Returns the name in metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Sessions => "sessions",
            Self::Children => "children",
        }
    }
}

/// Counts client connections that were turned away. The default value's counters are not part of any metric.
#[derive(Debug, Clone, Default)]
pub struct ConnectionCounts {
    /// The maximum number of connections was open.
    pub(crate) over_limit: Counter,
    /// Only the descriptors that are reserved for operators were left.
    pub(crate) without_descriptor: Counter,
}

impl ConnectionCounts {
    pub(super) fn new(counters: &Counters) -> Self {
        let of = |reason: &str| counters.get_or_create_owned(&vec![("reason", reason.to_owned())]);
        Self { over_limit: of("max_connections"), without_descriptor: of("descriptors") }
    }
}
