//! One test binary: what Milepost does, as facts.
#![allow(clippy::unwrap_used, missing_docs)]

mod checker;
mod child;
mod demo;
mod extremes;
mod lines;
mod relay;
mod routes;
mod script;
mod through_wrap;
mod tidy;
mod wrap;

#[path = "../support/mod.rs"]
mod support;
