//! What stands around the routes: who is let in, and what passes.
//!
//! Knows routes and HTTP; knows nothing of what is done with a request that was let in.

mod authority;
pub mod cors;
pub mod guard;
pub mod headers;
pub mod places;
mod refusal;
mod via;

pub use refusal::Refusal;
pub use via::Via;
