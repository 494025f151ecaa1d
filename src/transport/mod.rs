//! The two legs.
pub mod child;
