//! The progress for the clients of one upstream connection.
//!
//! A [`Filter`] receives every message, in both directions, and returns the bytes to write:
//!
//! ```text
//! client ─> client_message ─────────────────────────────────────────────> payload for the server
//!                │ opens a call
//!             [ledger] <─ correlate ─ Report <─ dialect ─┐
//!                │ pending, due at …                     │
//! client <─ poll_transmit <── stream queue <─ answer <── server_message <─ server
//!              gate: token, value, text decided here
//! ```
//!
//! The contract: time never goes backwards; after every call, and when [`Filter::poll_timeout`]
//! passes, drain [`Filter::poll_transmit`] for each stream that can take bytes, then
//! [`Filter::poll_to_server`], [`Filter::poll_released`] and [`Filter::poll_event`]; report written
//! bytes with [`Filter::written`].
//!
//! The core has no clock, no I/O, no tasks, no logs, no randomness, no unordered iteration; no
//! input makes it panic, and a full table withholds nothing but progress. Time is an argument, so
//! that a test of half a minute takes no time and cannot flake.

pub mod clients;
mod correlate;
pub mod dialect;
pub mod durations;
mod event;
pub mod extract;
mod failed_filter;
mod few_map;
mod filter;
pub mod gate;
mod ids;
pub mod input;
mod intake;
mod kept;
mod kind_counts;
mod late;
mod log_request;
mod one_line;
mod payload;
pub mod policy;
mod tasks;
mod topology;
mod transmit_queue;
mod value;
mod verdict;

pub use correlate::given_names::NameKey;
pub use correlate::ledger::CALLS_MAX;
pub use dialect::report::MESSAGE_MAX;
pub use event::late::{LateEvent, LateNews};
pub use event::queue::VerdictRun;
pub use event::request_origin::{ReplicaHop, RequestOrigin};
pub use event::summary::{CallStats, OpenCall, Outcome, Summary};
pub use event::task::{TaskEvent, TaskNews};
pub use event::{Disposition, FilterEvent, Origin, RefusalRule};
pub use failed_filter::FailedFilter;
pub use filter::Filter;
pub use gate::stream::{QUEUE_MAX, StreamKind};
pub use ids::{CallId, StreamId};
pub use intake::arrived_message::ArrivedMessage;
pub use intake::batch::BATCH_MAX;
pub use intake::fast_repair::FastPath;
pub use intake::large_answer::LargeRepairs;
pub use intake::large_message::SpooledAnswer;
pub use intake::request_members::RequestMembers;
pub use kind_counts::KindCounts;
pub use late::held::ReleasedRequest;
pub use payload::{Form, Fragment, Payload, Transmit, TransmitKind};
pub use policy::{
    AnswerRepairs, CallPolicy, Coalesce, Heartbeat, HeartbeatValue, Messages, Mode, OnFall, Pacing,
    Policy, Scale, StreamPacing, TokenIs, ValueFrom,
};
pub use tasks::date::rfc_3339;
pub use tasks::show::task_words;
pub use value::{Number, NumberView, ProgressValue, ProgressView};
pub use verdict::{Reason, Repair, Repairs, Verdict};
