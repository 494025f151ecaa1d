//! Writes messages as events, with the event ids of the bridge.

use bytes::Bytes;

use crate::progress::StreamId;
use crate::protocol::sse;
use crate::transport::http::body::Batch;
use crate::transport::mcp_http::content::on_one_line;

/// The id of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventId<'a> {
    /// The stream of the session that the event belongs to.
    pub(crate) stream: StreamId,
    /// The number of the message within its stream.
    pub(crate) number: u64,
    /// In a fleet: the requests of the stream, by which another replica can identify it.
    pub(crate) requests: Option<&'a str>,
}

impl EventId<'_> {
    /// Returns the `id:` line of the event.
    fn line(&self) -> String {
        let Self { stream, number, requests } = self;
        match requests {
            None => format!("id: {}-{number}\n", stream.0),
            Some(requests) => format!("id: {}-{number}-{requests}\n", stream.0),
        }
    }
}

/// Writes the beginning of an event, up to its message.
pub(crate) fn head(id: Option<EventId<'_>>, out: &mut Batch) {
    if let Some(id) = id {
        out.raw(&id.line().into());
    }
    out.raw(&Bytes::from_static(sse::MESSAGE_HEAD));
}

/// Writes a part of the event's message. Line ends are replaced: in JSON they can only be space between tokens.
pub(crate) fn data(piece: &Bytes, out: &mut Batch) {
    out.raw(&on_one_line(piece.clone()));
}

/// Writes the end of an event.
pub(crate) fn tail(out: &mut Batch) {
    out.raw(&Bytes::from_static(sse::EVENT_END));
}

/// Writes the end of an event whose message will not be completed.
pub(crate) fn broken_off(out: &mut Batch) {
    out.raw(&Bytes::from_static(sse::BROKEN_OFF));
}

/// Writes a whole event.
pub(crate) fn event(id: Option<EventId<'_>>, message: &Bytes, out: &mut Batch) {
    head(id, out);
    data(message, out);
    tail(out);
}

/// Returns the first event of a stream: an id, so that the client can resume even before the first message, and the
/// wait in milliseconds before a reconnect.
pub(crate) fn priming(id: EventId<'_>, retry_ms: u64) -> Bytes {
    format!("{}retry: {retry_ms}\ndata: \n\n", id.line()).into()
}

/// Returns the stream and the position in an event id of the bridge.
pub(crate) fn read_id(id: &[u8]) -> Option<(u64, u64)> {
    let (stream, rest) = std::str::from_utf8(id).ok()?.split_once('-')?;
    let number = rest.split_once('-').map_or(rest, |(number, _)| number);
    Some((stream.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_are_read_as_they_are_written() {
        let mut id = EventId { stream: StreamId(3), number: 17, requests: None };
        assert_eq!(id.line(), "id: 3-17\n");
        assert_eq!(read_id(b"3-17"), Some((3, 17)));
        id.requests = Some("a-_");
        assert_eq!(id.line(), "id: 3-17-a-_\n");
        assert_eq!(read_id(b"3-17-a-_"), Some((3, 17)));
        for other in [&b""[..], b"3", b"3-", b"-3", b"a-1", b"3--2", b"\xff-1"] {
            assert_eq!(read_id(other), None);
        }
    }
}
