//! Tests of the engine. Tests that need a route file or a program are among the tests of the proxy.
#![allow(clippy::unwrap_used, missing_docs)]

mod codec;
mod conversation;
mod core;
#[cfg(feature = "toml")]
mod policy_file;

/// Helpers that the tests of the proxy use too.
#[path = "../../../../tests/support"]
mod support {
    #[allow(dead_code)]
    pub(crate) mod messages;
}
