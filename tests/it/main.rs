//! One test binary: what Milepost does, as facts.
#![allow(clippy::unwrap_used, missing_docs)]

mod checker;
mod child;
mod demo;
mod extremes;
mod fuzz;
mod fuzz_bodies;
mod legacy;
mod lines;
mod over_http;
mod properties;
mod relay;
mod rig;
mod routes;
mod script;
mod sse;
mod talk;
mod through_wrap;
mod tidy;
mod wrap;

#[path = "../support/mod.rs"]
mod support;
