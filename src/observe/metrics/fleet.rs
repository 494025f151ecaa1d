//! Metrics of a fleet of replicas.

use prometheus_client::metrics::counter::Counter;

use super::Counters;

/// The outcome of a request whose session may belong to another replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetEvent {
    /// The request was passed on to the owner of its session, which has answered.
    PassedOn,
    /// Another replica has passed the request on.
    Received,
    /// The owner has ended, and this replica served the request.
    TakenOver,
    /// The owner has ended, and its server too.
    Lost,
    /// The owner ended while it was answering the request.
    Failed,
    /// Another replica has passed the request on, but its session is not here.
    Loop,
}

impl FleetEvent {
    const ALL: [Self; 6] =
        [Self::PassedOn, Self::Received, Self::TakenOver, Self::Lost, Self::Failed, Self::Loop];

    /// Returns the name in metrics.
    const fn name(self) -> &'static str {
        match self {
            Self::PassedOn => "passed-on",
            Self::Received => "received",
            Self::TakenOver => "taken-over",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Loop => "loop",
        }
    }
}

/// The counts of a replica's part in its fleet.
#[derive(Debug)]
pub struct FleetCounts {
    requests: [Counter; 6],
}

impl FleetCounts {
    pub(super) fn new(requests: &Counters) -> Self {
        let counter = |event: FleetEvent| {
            requests.get_or_create_owned(&vec![("event", event.name().to_owned())])
        };
        Self { requests: FleetEvent::ALL.map(counter) }
    }

    /// Counts a request.
    pub fn count(&self, event: FleetEvent) {
        if let Some(counter) = self.requests.get(event as usize) {
            counter.inc();
        }
    }
}
