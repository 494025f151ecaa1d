//! Milepost.
pub mod lines;
pub mod transport;
