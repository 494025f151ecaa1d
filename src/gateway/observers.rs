//! The observers of a route. Each filter gets those that need its events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::observe::events::{EventEmitter, FilterId, ObserverFactory, Scope};
use crate::observe::log::Connection;
use crate::observe::metrics::RouteCounts;
use crate::progress::Policy;
use crate::transport::clock::now;

/// The number for the next filter that is observed.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The observers of a route, and the counters of the route.
pub(crate) struct Observers {
    route: String,
    pub(crate) counts: Arc<RouteCounts>,
    observers: Vec<Arc<dyn ObserverFactory>>,
}

impl Observers {
    /// Returns the observers of this route.
    pub(crate) fn new(
        route: &str,
        counts: Arc<RouteCounts>,
        observers: &[Arc<dyn ObserverFactory>],
    ) -> Arc<Self> {
        Arc::new(Self { route: route.to_owned(), counts, observers: observers.to_vec() })
    }

    /// Returns a log that counts for the route.
    pub(crate) fn log(&self) -> Connection {
        Connection::of(&self.counts)
    }

    /// Whether operators see the calls of the route, and may cancel them.
    pub(crate) fn has_operators(&self) -> bool {
        self.observers.iter().any(|factory| factory.has_operators())
    }

    /// Returns the emitter for the observers of a filter, if there are any. The filter belongs to the same conversation
    /// as the filter `beside`.
    pub(crate) fn emitter(
        &self,
        beside: Option<FilterId>,
        scope: Scope,
        policy: &Arc<Policy>,
    ) -> Option<EventEmitter> {
        if self.observers.is_empty() {
            return None;
        }
        let filter = NEXT.fetch_add(1, Ordering::Relaxed);
        let id =
            FilterId { conversation: beside.map_or(filter, |beside| beside.conversation), filter };
        let begin =
            |factory: &Arc<dyn ObserverFactory>| factory.begin(id, &self.route, scope, policy);
        EventEmitter::new(id, now(), self.observers.iter().filter_map(begin).collect())
    }
}
