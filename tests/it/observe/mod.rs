//! Observation: logs, metrics, recordings, learned durations, and the table of clients.

mod clients;
mod durations;
mod logs;
pub(crate) mod metrics;
mod record_serve;
mod record_wrap;
mod recorded_settings;
