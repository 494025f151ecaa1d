//! The two legs, and what lies between them where it is too long to be held.
pub mod child;
pub mod spill;
pub mod stdio;
