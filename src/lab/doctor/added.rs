//! The proxy's own actions: the notifications that it adds (a report must not count them as the server's), and the
//! number of reports that it withholds because the answer must not be mistaken for them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;

use crate::observe::events::{
    EventKind, FilterId, Observer, ObserverEvent, ObserverFactory, Scope,
};
use crate::progress::{FilterEvent, Policy, Reason, Verdict};

/// Added notifications, by token and value. The value is unique, because it rises with each notification of a token.
#[derive(Debug, Clone, Default)]
pub struct AddedProgress {
    added: Arc<Mutex<BTreeSet<(String, String)>>>,
    overtaken: Arc<AtomicUsize>,
}

impl AddedProgress {
    fn key(params: &Value) -> (String, String) {
        (params["progressToken"].to_string(), params["progress"].to_string())
    }

    /// Whether the proxy has added the notification with these parameters.
    pub fn contains(&self, params: &Value) -> bool {
        self.added.lock().unwrap_or_else(PoisonError::into_inner).contains(&Self::key(params))
    }

    /// Returns the number of notifications that were withheld because the answer had already come.
    pub fn overtaken(&self) -> usize {
        self.overtaken.load(Ordering::Relaxed)
    }

    /// Remembers a notification that the proxy has added.
    pub fn insert(&self, params: &Value) {
        self.added.lock().unwrap_or_else(PoisonError::into_inner).insert(Self::key(params));
    }
}

impl ObserverFactory for AddedProgress {
    fn begin(&self, _: FilterId, _: &str, _: Scope, _: &Arc<Policy>) -> Option<Box<dyn Observer>> {
        Some(Box::new(AddedObserver { added: self.clone(), last: None }))
    }
}

/// Finds the notifications that a filter adds.
#[derive(Debug)]
struct AddedObserver {
    added: AddedProgress,
    /// The last message to a client. The decision about a message comes after the message itself.
    last: Option<Bytes>,
}

impl Observer for AddedObserver {
    fn on_event(&mut self, event: &ObserverEvent) {
        match &event.kind {
            EventKind::ToClient(_, text) => self.last = Some(text.clone()),
            EventKind::Decided(FilterEvent::Heartbeat(_)) => {
                let text = self.last.take().unwrap_or_default();
                let message: Value = serde_json::from_slice(&text).unwrap_or_default();
                self.added.insert(&message["params"]);
            }
            EventKind::Decided(FilterEvent::Message {
                verdict: Verdict::Withheld(Reason::Overtaken),
                ..
            }) => {
                self.added.overtaken.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}
