//! Newline-delimited JSON.
