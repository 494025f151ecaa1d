//! Decides which clients of 2026-07-28 may share a session of an older server.

use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::protocol::jsonrpc::Message;
use crate::protocol::{json, mcp};
use crate::transport::http::client_name::{ClientName, LoopbackCaller};

/// Whether a client is identified, or is on this machine. The listener's bearer token admits a client but does not
/// identify it.
pub(crate) fn is_known(parts: &Parts) -> bool {
    parts.extensions.get::<ClientName>().is_some()
        || parts.extensions.get::<LoopbackCaller>().is_some()
        || parts.headers.contains_key(AUTHORIZATION)
}

/// Returns the client capabilities that a request states, as text.
pub(crate) fn capabilities_in(message: &Message) -> Vec<u8> {
    let params = message.params().unwrap_or_default();
    let meta = json::member(&params, "_meta").unwrap_or_default();
    let text = json::member(&meta, mcp::META_CAPABILITIES).unwrap_or_default();
    if text.len() > mcp::META_MAX {
        return text.to_vec();
    }
    let value = serde_json::from_slice::<serde_json::Value>(&text).unwrap_or_default();
    value.to_string().into_bytes()
}
