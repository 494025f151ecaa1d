//! Documents, packages and examples name only things that exist.

mod agents;
mod architecture;
mod compose;
mod deploy;
mod fleet;
mod limits;
mod links;
mod metrics_examples;
mod packages;
mod rules;
mod security;
mod settings;
mod short_calls;
