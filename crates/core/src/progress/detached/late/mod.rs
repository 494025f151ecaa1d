//! Late answers: the work of a call goes on after its client gave the call up by its clock, and the same call
//! of the same client joins that work.
//!
//! ```text
//!  open call ──given up by a clock──> kept ──the same call──> open call, with the client's new id and token
//!                                      │ └──answer──> finished ──the same call──> answered at once
//!                                      └──keep is over, or the client makes another call──> cancelled at the server
//! ```
//!
//! A call that comes before the cancellation of the open call that it repeats waits for that cancellation, for a
//! moment.
//!
//! The work belongs to one connection to a server: what another process, or another child, does is not joined.

pub(crate) mod answers;
pub(crate) mod calls;
pub(crate) mod habits;
pub(crate) mod held;
mod hold;
pub(crate) mod join;
mod plan;
