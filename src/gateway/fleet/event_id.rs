//! Event ids that contain the ids of their stream's requests, so that any replica can answer the requests after the
//! stream's own replica has ended.
//!
//! Without a fleet an event id is `STREAM-NUMBER`. In a fleet it is `STREAM-NUMBER-REQUESTS`, with the ids of the
//! requests in base64url. They are not sealed, because a client can only name requests in its own session, whose id is
//! sealed and comes with the event id.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, own_error};
use crate::transport::http::body::Batch;

/// Limit of the bytes of request ids in the event ids of one stream.
const NAMED_IDS_MAX: usize = 256;

/// Returns the part of an event id with the requests of its stream; `None` if there are none, or too many.
pub(crate) fn requests_part(ids: &[Bytes]) -> Option<Box<str>> {
    let text = ids.join(&b","[..]);
    (!text.is_empty() && text.len() <= NAMED_IDS_MAX).then(|| URL_SAFE_NO_PAD.encode(text).into())
}

/// Returns the requests that an event id names, each as JSON text.
pub(crate) fn requests_in(event_id: &[u8]) -> Vec<Bytes> {
    let Some(part) = event_id.splitn(3, |byte| *byte == b'-').nth(2) else { return Vec::new() };
    let text = URL_SAFE_NO_PAD.decode(part).ok().filter(|text| text.len() <= NAMED_IDS_MAX);
    let array = Bytes::from([&b"["[..], &text.unwrap_or_default(), b"]"].concat());
    let Some((elements, end)) = json::elements(&array) else { return Vec::new() };
    let ids = elements.into_iter().map(|id| array.slice(id));
    let ids: Vec<Bytes> = ids.filter(|id| Key::read(id).is_some()).collect();
    if end == array.len() { ids } else { Vec::new() }
}

/// Returns events that answer these requests with an error.
pub(crate) fn error_events(requests: &[Bytes], why: &str) -> Bytes {
    let mut events = Batch::default();
    for id in requests {
        crate::gateway::bridge::frame::event(None, &own_error(id, why, None), &mut events);
    }
    let mut bytes = Vec::new();
    while let Some(piece) = events.take() {
        bytes.extend_from_slice(&piece);
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ids: &[&'static str]) {
        let ids: Vec<Bytes> = ids.iter().map(|id| Bytes::from_static(id.as_bytes())).collect();
        let part = requests_part(&ids).unwrap();
        let event_id = format!("3-17-{part}");
        assert_eq!(requests_in(event_id.as_bytes()), ids);
    }

    #[test]
    fn event_ids_name_the_requests_of_their_stream() {
        check(&["7"]);
        check(&["\"a-b,c\"", "12345678901234567890"]);
        assert_eq!(requests_part(&[]), None);
        assert_eq!(requests_part(&[Bytes::from(vec![b'1'; NAMED_IDS_MAX + 1])]), None);
    }

    #[test]
    fn an_event_id_of_others_names_none() {
        let part = |text: &str| format!("3-17-{}", URL_SAFE_NO_PAD.encode(text));
        for id in [
            "",
            "3",
            "3-17",
            "3-17-",
            "3-17-!",
            &part("}"),
            &part("1]"),
            &part("{}"),
            &part("null"),
        ] {
            assert!(requests_in(id.as_bytes()).is_empty(), "{id}");
        }
    }
}
