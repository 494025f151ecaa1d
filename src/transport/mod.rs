//! The two legs.
