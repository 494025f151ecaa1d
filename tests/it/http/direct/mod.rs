//! HTTP clients in front of HTTP servers, in memory and in virtual time: every byte of both sides is the
//! test's own.

mod answers_elsewhere;
mod any_conversation;
mod ask_servers;
mod event_streams;
mod held_get;
mod http_sse;
pub(crate) mod large_bodies;
mod late_streams;
mod learned_durations;
mod lifecycle;
mod log_messages;
mod questions;
mod redirects;
mod repaired_events;
mod requests;
mod settings_change;
mod transcripts_over_http;
mod two_proxies;
