//! What the engine does, as facts. What needs a route file or a program is in the tests of the proxy.
#![allow(clippy::unwrap_used, missing_docs)]

mod codec;
mod conversation;
mod core;
#[cfg(feature = "toml")]
mod policy_file;

/// What the tests of the proxy have too.
#[path = "../../../../tests/support"]
mod support {
    #[allow(dead_code)]
    pub(crate) mod messages;
}
