//! The responses of the reference server over HTTP.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use http::Response;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::event_stream::EventReader;
use super::reply::ReplyPiece;
use crate::lab::local_http::{LocalBody, event_stream};
use crate::protocol::sse;

/// The interval of comments on a stream without events.
const COMMENT_EVERY: Duration = Duration::from_secs(15);

const COMMENT: Bytes = Bytes::from_static(b": here\n\n");

/// The events of a request, as they come. `has_preface`: the first event has no message, and its id lets
/// a client come back before there is one; clients before 2025-11-25 take such an event for a fault.
pub(super) fn events(reader: EventReader, has_preface: bool) -> Response<LocalBody> {
    let preface = format!("id: {}\nretry: 100\ndata:\n\n", reader.first_id());
    let preface = has_preface.then(|| Bytes::from(preface));
    let rest = stream::unfold(reader, |mut reader| async {
        match timeout(COMMENT_EVERY, reader.next()).await {
            Ok(bytes) => bytes.map(|bytes| (bytes, reader)),
            Err(_) => Some((COMMENT, reader)),
        }
    });
    event_stream(stream::iter(preface).chain(rest))
}

/// The stream of HTTP+SSE; `endpoint`: the place for messages.
pub(super) fn shared_events(
    pieces: mpsc::Receiver<ReplyPiece>,
    endpoint: &str,
) -> Response<LocalBody> {
    let preface = Bytes::from(format!("event: endpoint\ndata: {endpoint}\n\n"));
    event_stream(stream::iter([preface]).chain(events_of(pieces)))
}

/// The events of a request of 2026-07-28: without ids, as no response goes on elsewhere.
pub(super) fn plain_events(pieces: mpsc::Receiver<ReplyPiece>) -> Response<LocalBody> {
    event_stream(events_of(pieces))
}

fn events_of(pieces: mpsc::Receiver<ReplyPiece>) -> impl stream::Stream<Item = Bytes> {
    stream::unfold(pieces, |mut pieces| async {
        let bytes = match timeout(COMMENT_EVERY, pieces.recv()).await {
            Err(_) => COMMENT,
            Ok(None) => return None,
            Ok(Some(ReplyPiece::HangUp)) => Bytes::new(),
            Ok(Some(ReplyPiece::Messages(messages))) => {
                let mut events = BytesMut::new();
                messages.iter().for_each(|text| sse::append(&mut events, [text]));
                events.freeze()
            }
        };
        Some((bytes, pieces))
    })
}

/// A stream without events.
pub(super) fn idle() -> Response<LocalBody> {
    let comments = stream::unfold((), |()| async {
        sleep(COMMENT_EVERY).await;
        Some((COMMENT, ()))
    });
    event_stream(stream::iter([COMMENT]).chain(comments))
}
