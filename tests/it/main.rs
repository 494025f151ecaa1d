//! One test binary: what Milepost does, as facts.
#![allow(clippy::unwrap_used, missing_docs)]

mod adopt;
mod asked;
mod check;
mod checker;
mod child;
mod clients;
mod demo;
mod durations;
mod extremes;
mod figures;
mod fuzz;
mod fuzz_bodies;
mod legacy;
mod lines;
mod masks;
mod metrics;
mod over_http;
mod overheard;
mod packages;
mod pairs;
mod plain;
mod probe;
mod properties;
mod relay;
mod rig;
mod routes;
mod script;
mod serve;
mod serving;
mod shared;
mod sse;
mod sse_rig;
mod talk;
mod terminal;
mod through_wrap;
mod tidy;
mod towards;
mod wrap;
mod wrap_config;
mod wrap_url;

#[path = "../support/mod.rs"]
mod support;
