//! `milepost serve`: who is let in, and from when to when.

pub mod guard;
