//! The two legs.
pub mod child;
pub mod stdio;
