//! The responses of the reference server over HTTP.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::event_stream::EventReader;
use super::reply::ReplyPiece;

/// The interval of comments on a stream without events.
const COMMENT_EVERY: Duration = Duration::from_secs(15);

const COMMENT: Bytes = Bytes::from_static(b": here\n\n");

/// The body of a response.
pub(super) type ReferenceBody = UnsyncBoxBody<Bytes, Infallible>;

/// A response without messages.
pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<ReferenceBody> {
    let mut response = Response::new(Full::from(text).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn stream_of(bytes: impl stream::Stream<Item = Bytes> + Send + 'static) -> Response<ReferenceBody> {
    let frames = bytes.map(|bytes| Ok(Frame::data(bytes)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-cache"));
    response
}

/// The events of a request, as they come. `has_preface`: the first event has no message, and its id lets
/// a client come back before there is one; clients before 2025-11-25 take such an event for a fault.
pub(super) fn events(reader: EventReader, has_preface: bool) -> Response<ReferenceBody> {
    let preface = format!("id: {}\nretry: 100\ndata:\n\n", reader.first_id());
    let preface = has_preface.then(|| Bytes::from(preface));
    let rest = stream::unfold(reader, |mut reader| async {
        match timeout(COMMENT_EVERY, reader.next()).await {
            Ok(bytes) => bytes.map(|bytes| (bytes, reader)),
            Err(_) => Some((COMMENT, reader)),
        }
    });
    stream_of(stream::iter(preface).chain(rest))
}

/// The stream of HTTP+SSE; `endpoint`: the place for messages.
pub(super) fn shared_events(
    pieces: mpsc::Receiver<ReplyPiece>,
    endpoint: &str,
) -> Response<ReferenceBody> {
    let preface = Bytes::from(format!("event: endpoint\ndata: {endpoint}\n\n"));
    let rest = stream::unfold(pieces, |mut pieces| async {
        let bytes = match timeout(COMMENT_EVERY, pieces.recv()).await {
            Err(_) => COMMENT,
            Ok(None) => return None,
            Ok(Some(ReplyPiece::HangUp)) => Bytes::new(),
            Ok(Some(ReplyPiece::Messages(messages))) => {
                let event = |text: String| format!("event: message\ndata: {text}\n\n");
                Bytes::from(messages.into_iter().map(event).collect::<String>())
            }
        };
        Some((bytes, pieces))
    });
    stream_of(stream::iter([preface]).chain(rest))
}

/// A stream without events.
pub(super) fn idle() -> Response<ReferenceBody> {
    let comments = stream::unfold((), |()| async {
        sleep(COMMENT_EVERY).await;
        Some((COMMENT, ()))
    });
    stream_of(stream::iter([COMMENT]).chain(comments))
}
