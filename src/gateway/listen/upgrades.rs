//! Requests that want to switch from HTTP to another protocol.

use http::HeaderValue;
use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;

use crate::transport::http::refusal::Refusal;

/// `Upgrade` is an offer, and a server may stay with HTTP/1.1: to clients that offer HTTP/2 with
/// every request, as Java's does, it does. A WebSocket cannot be had here, and is better refused.
///
/// # Errors
/// If a request asks for a protocol that the listener does not switch to.
pub(super) fn admit_upgrade(parts: &Parts) -> Result<(), Refusal> {
    let named = |line: &HeaderValue| {
        line.as_bytes()
            .split(|byte| *byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
    };
    let mut offered = parts.headers.get_all(UPGRADE).iter();
    let wants_another = parts.headers.get_all(CONNECTION).iter().any(named)
        && offered.any(|line| !line.as_bytes().eq_ignore_ascii_case(b"h2c"));
    if wants_another { Err(Refusal::Upgrade) } else { Ok(()) }
}
