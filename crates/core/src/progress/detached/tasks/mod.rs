//! Milepost's own tasks: a client of 2025-11-25 runs a tool call as a task, while the server, which does not know
//! tasks, runs an ordinary call.
//!
//! ```text
//!  tools/call with `task` ──> working ──the server's answer──> completed, failed ──tasks/result──> the answer
//!                              │  └─the server asks its client─> input_required ──the client answers──> working
//!                              ├──tasks/cancel──> cancelled; the server gets the cancellation
//!                              └──the time to live is over──> forgotten; the server gets the cancellation
//! ```
//!
//! A task belongs to the connection of its client: no other connection finds the task.

pub(crate) mod answer;
pub(crate) mod begin;
pub(crate) mod date;
pub(crate) mod offer;
pub(crate) mod requests;
pub(crate) mod show;
pub(crate) mod table;
