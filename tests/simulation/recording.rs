//! The conversations of a rig are not recorded here: that takes longer than all else.

use std::sync::Arc;

use milepost::observe::events::{FilterId, Observer, ObserverFactory, Scope};
use milepost::progress::Policy;

pub(crate) struct Records;

#[derive(Debug)]
struct Nobody;

impl ObserverFactory for Nobody {
    fn begin(&self, _: FilterId, _: &str, _: Scope, _: &Arc<Policy>) -> Option<Box<dyn Observer>> {
        None
    }
}

impl Records {
    pub(crate) fn new(_: &str) -> Self {
        Self
    }

    #[allow(clippy::unused_self, reason = "it has the form of the other one")]
    pub(crate) fn factory(&self) -> Arc<dyn ObserverFactory> {
        Arc::new(Nobody)
    }
}
