//! Messages as events with event ids of the bridge.

use bytes::Bytes;

use crate::progress::StreamId;
use crate::transport::http::body::Batch;
use crate::transport::mcp_http::content::on_one_line;

/// The beginning of an event, up to its message. `id`: its stream and its number there.
pub(crate) fn head(id: Option<(StreamId, u64)>, out: &mut Batch) {
    if let Some((stream, number)) = id {
        out.raw(&event_id(stream, number).into());
    }
    out.raw(&Bytes::from_static(b"event: message\ndata: "));
}

/// A part of its message. Line ends in it can only be space between tokens of the JSON.
pub(crate) fn data(piece: &Bytes, out: &mut Batch) {
    out.raw(&on_one_line(piece.clone()));
}

/// The end of the frame.
pub(crate) fn tail(out: &mut Batch) {
    out.raw(&Bytes::from_static(b"\n\n"));
}

/// A whole event.
pub(crate) fn event(id: Option<(StreamId, u64)>, message: &Bytes, out: &mut Batch) {
    head(id, out);
    data(message, out);
    tail(out);
}

/// The first event of a stream: an id, so that the client can resume before the first message, and the wait
/// before a reconnect in milliseconds.
pub(crate) fn priming(stream: StreamId, retry_ms: u64) -> Bytes {
    format!("{}retry: {retry_ms}\ndata: \n\n", event_id(stream, 0)).into()
}

/// An event id names its stream, because a session has many streams.
fn event_id(stream: StreamId, number: u64) -> String {
    format!("id: {}-{number}\n", stream.0)
}

/// The stream and position in an event id of the bridge.
pub(crate) fn read_id(id: &[u8]) -> Option<(u64, u64)> {
    let (stream, number) = std::str::from_utf8(id).ok()?.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_are_read_as_they_are_written() {
        assert_eq!(event_id(StreamId(3), 17), "id: 3-17\n");
        assert_eq!(read_id(b"3-17"), Some((3, 17)));
        for other in [&b""[..], b"3", b"3-", b"-3", b"a-1", b"3-17-2", b"\xff-1"] {
            assert_eq!(read_id(other), None);
        }
    }
}
