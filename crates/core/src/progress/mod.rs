//! The progress for the clients of one upstream connection.
//!
//! A [`Filter`] receives every message, in both directions, and returns the bytes to write. It consists of stages, one
//! above the other. Each stage owns the stage below it and calls only downwards; [`DetachedWork`] gets the gate as an
//! argument.
//!
//! ```text
//! Filter         filter.rs    the door: inputs go in, bytes and events come out
//! Intake         intake/      bytes -> envelope -> dialect -> Report; the requests of clients
//! DetachedWork   detached/    work that goes on without its client: late answers, tasks of Milepost's own
//! Gate           gate/        when a client gets which value; the end of a call
//! Correlator     correlate/   which call a message is about; the state of each call
//! ClientStreams  streams/     the messages that wait for each client
//! ```
//!
//! A report of the server passes down through these stages and waits in its call. When it is due,
//! [`Filter::poll_transmit`] asks the gate, which decides on token, value and text at the time of writing. An answer
//! takes the same path and ends its call, so no progress can follow it.
//!
//! The contract: time never goes backwards. After every call, and when the time of [`Filter::poll_timeout`] comes,
//! drain [`Filter::poll_transmit`] for each stream that can take bytes, then [`Filter::poll_to_server`],
//! [`Filter::poll_released`] and [`Filter::poll_event`]. Report written bytes with [`Filter::written`].
//!
//! The core has no clock, no I/O, no tasks, no logs, no randomness, no unordered iteration; no input makes it panic,
//! and a full table withholds only progress. Time is an argument, so a test that simulates half a minute finishes
//! immediately and is not flaky.

mod arrived_message;
pub mod client_habits;
pub mod clients;
mod correlate;
mod detached;
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
mod kind_counts;
mod log_request;
mod one_line;
mod payload;
pub mod policy;
mod streams;
mod topology;
mod transmit_queue;
mod value;
mod verdict;

pub use arrived_message::ArrivedMessage;
pub use correlate::correlator::Correlator;
pub use correlate::given_names::NameKey;
pub use correlate::handshake::Handshake;
pub use correlate::open_calls::{CALLS_MAX, OpenCalls};
pub use detached::DetachedWork;
pub use detached::late::held::ReleasedRequest;
pub use detached::store::{KeptBytes, Work, WorkStore};
pub use detached::tasks::date::rfc_3339;
pub use detached::tasks::show::task_words;
pub use dialect::report::MESSAGE_MAX;
pub use event::late::{LateEvent, LateNews};
pub use event::operator_cancel::{CancelResult, OperatorCancel};
pub use event::queue::{EventQueue, VerdictRun};
pub use event::request_origin::{ReplicaHop, RequestOrigin};
pub use event::summary::{CallStats, OpenCall, Outcome, Summary};
pub use event::task::{TaskEvent, TaskNews};
pub use event::{Disposition, FilterEvent, Origin, RefusalRule};
pub use failed_filter::FailedFilter;
pub use filter::Filter;
pub use gate::state::Gate;
pub use ids::{CallId, StreamId};
pub use intake::batch::BATCH_MAX;
pub use intake::fast_repair::FastPath;
pub use intake::large_answer::LargeRepairs;
pub use intake::large_message::SpooledAnswer;
pub use intake::request_members::RequestMembers;
pub use intake::state::Intake;
pub use kind_counts::KindCounts;
pub use payload::{Form, Fragment, Payload, Transmit, TransmitKind};
pub use policy::{
    AnswerRepairs, CallPolicy, Coalesce, Heartbeat, HeartbeatValue, Messages, Mode, OnFall, Pacing,
    Policy, Scale, StreamPacing, TokenIs, ValueFrom,
};
pub use streams::ClientStreams;
pub use streams::stream::{QUEUE_MAX, StreamKind};
pub use value::{Number, NumberView, ProgressValue, ProgressView};
pub use verdict::{Reason, Repair, Repairs, Verdict};
