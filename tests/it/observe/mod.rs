//! Observation: logs, metrics, traces, recordings, learned durations, and the table of clients.

mod clients;
mod durations;
mod local_views;
mod logs;
pub(crate) mod metrics;
mod otlp;
mod record_serve;
mod record_wrap;
mod recorded_settings;
