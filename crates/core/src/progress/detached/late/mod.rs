//! Late answers: the work of a call continues after the client's clock ran out and the client gave the call up. The
//! same call of the same client then joins the work.
//!
//! ```text
//!  open call ──given up by a clock──> kept ──the same call──> open call, with the client's new id and token
//!                                      │ └──answer──> finished ──the same call──> answered at once
//!                                      └──keep is over, or the client makes another call──> cancelled at the server
//! ```
//!
//! A call may come before the client has cancelled the open call that it repeats. It then waits for the cancellation for a
//! moment.
//!
//! The work belongs to one connection to a server. The work of another process or child process cannot be joined.

pub(crate) mod answers;
pub(crate) mod calls;
pub(crate) mod habits;
pub(crate) mod held;
mod hold;
pub(crate) mod join;
mod plan;
