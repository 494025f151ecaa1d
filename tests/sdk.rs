//! Clients and servers made with the official SDKs, with and without Milepost between them.
#![allow(clippy::unwrap_used, missing_docs)]

mod never_worse;
mod support;
