//! The documents agree with the code.

mod limits;
