//! The engine of Milepost: it turns whatever an MCP server says about progress into `notifications/progress` that
//! clients accept. It does no I/O: bytes and the time go in, bytes come out.
//!
//! - [`protocol`] reads messages where they lie: JSON, JSON-RPC, event streams, lines.
//! - [`progress`] decides: a [`progress::Filter`] receives every message of a connection, in both directions, and returns
//!   what to write.
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
pub mod progress;
pub mod protocol;
