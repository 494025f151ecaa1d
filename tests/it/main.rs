//! One test binary: what Milepost does, as facts.
#![allow(clippy::unwrap_used, missing_docs)]

mod checker;
mod child;
mod lines;
mod relay;
mod script;
mod tidy;
