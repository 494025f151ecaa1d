//! Documents, packages and examples name only things that exist.

mod limits;
mod links;
mod metrics_examples;
mod packages;
