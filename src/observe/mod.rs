//! Logs, counters, traces, recordings and the table of calls.
pub mod calls;
pub mod cancellations;
pub mod durations;
pub mod error_chain;
pub mod events;
mod fitting_member;
pub mod log;
pub mod metrics;
pub mod otlp;
mod pending_verdicts;
pub mod pointer_watch;
pub mod printable;
pub mod record;
pub mod redact;
pub mod transcript;
pub mod untokened_clients;
