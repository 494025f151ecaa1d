//! One test binary: what Milepost does, as facts. A folder holds the tests of one part.
#![allow(clippy::unwrap_used, missing_docs)]
// The tests start shells and send signals.
#![cfg(unix)]

mod codec;
mod commands;
mod core;
mod docs;
mod faults;
mod hostile;
mod http;
mod lab;
mod legacy_systems;
mod observe;
mod pairs;
mod stdio;
mod tidy;
mod upstream;

#[path = "../support/mod.rs"]
mod support;
