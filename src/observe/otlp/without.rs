//! A build that tells of no spans.

use super::{Counts, Mark, Over};
use crate::progress::Summary;

/// Where somebody expects spans to be sent.
const WANTED: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Nothing.
#[derive(Debug)]
pub struct Traces;

/// Says so, if somebody expects spans.
pub fn start(_over: Over) -> Traces {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = WANTED.into_iter().find(|name| is_set(name)) {
        tracing::warn!(
            "{name} is set, but this build tells of no traces: it lacks the feature `otlp` \
             (cargo install --features otlp)"
        );
    }
    Traces
}

impl Traces {
    /// Nothing is left to be told.
    pub fn close(self) {}
}

/// Whether calls become spans.
pub fn is_on() -> bool {
    false
}

/// How many spans there were.
pub fn counts() -> Counts {
    Counts::default()
}

/// The trace in which the span of a call is.
pub fn tell(_call: &Summary, _route: Option<&str>, _marks: &[Mark]) -> Option<String> {
    None
}
