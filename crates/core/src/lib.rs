//! The engine of Milepost, without I/O.
//!
#![doc = include_str!("../README.md")]
//!
//! # A tour
//!
//! 1. [`conversation`]: a [`conversation::Conversation`] owns one client and one server. It cuts bytes into messages,
//!    keeps the order in which results are taken, and goes on without repairs if the engine panics. Most programs need
//!    nothing else.
//! 2. [`progress`]: a [`progress::Filter`] receives every message of a connection, in both directions, and returns what
//!    to write. A program that frames messages itself, and has many streams, drives a filter.
//! 3. [`protocol`]: reads messages in place and never serializes them again.
//!
//! A [`progress::Policy`] has the settings of a route of the proxy as fields: [`progress::CallPolicy`] those of calls. With
//! the feature `toml` it is read from the same TOML as a route (`Policy::from_toml`).
//!
//! A filter without a conversation, with a clock that the program moves:
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use bytes::Bytes;
//! use milepost_core::progress::{Filter, Origin, Policy, StreamId, StreamKind, StreamPacing};
//! use milepost_core::protocol::jsonrpc::Message;
//!
//! let read = |text: &'static str| Message::parse(Bytes::from_static(text.as_bytes()));
//! let call = read(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"scan","_meta":{"progressToken":"t"}}}"#);
//! let legacy = read(r#"{"jsonrpc":"2.0","method":"tools/progress","params":{"token":"t","percent":40}}"#);
//!
//! let (client, mut now) = (StreamId(0), Instant::now());
//! let mut filter = Filter::new(Policy::default());
//! filter.open_stream(client, StreamKind::Shared, StreamPacing::ByCall);
//! filter.client_message(now, client, &call);
//! filter.server_message(now, Origin::Shared, &legacy);
//! // Progress waits a moment: an answer at once would make it useless.
//! now += Duration::from_secs(1);
//! let told = filter.poll_transmit(now, client).map(|transmit| transmit.payload.to_bytes());
//! let text = String::from_utf8(told.unwrap_or_default().to_vec()).unwrap_or_default();
//! assert!(text.contains("notifications/progress") && text.contains(r#""progress":40"#), "{text}");
//! ```
pub mod conversation;
#[cfg(feature = "toml")]
pub mod policy_file;
pub mod progress;
pub mod protocol;
