//! The responses of the reference server over HTTP.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::Response;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::event_stream::EventReader;
use crate::gateway::mcp_server::{self, ReplyPiece, ServedBody, endpoint_event};
use crate::lab::local_http::event_stream;

/// The interval of comments on a stream that has no events.
const COMMENT_EVERY: Duration = Duration::from_secs(15);

const COMMENT: Bytes = Bytes::from_static(b": here\n\n");

/// Returns a first event without a message. With its id a client can resume before the first message; clients before
/// 2025-11-25 take such an event for a fault.
pub(super) fn preface(reader: &EventReader) -> Bytes {
    format!("id: {}\nretry: 100\ndata:\n\n", reader.first_id()).into()
}

/// Returns the events of a request, as they arrive, behind the [`preface`], if there is one.
pub(super) fn kept_events(preface: Option<Bytes>, reader: EventReader) -> Response<ServedBody> {
    let next = |mut reader: EventReader| async { Some((reader.next().await?, reader)) };
    response(preface, stream::unfold(reader, next))
}

/// Returns the stream of HTTP+SSE. `endpoint` is the URL for messages.
pub(super) fn shared_events(
    pieces: mpsc::Receiver<ReplyPiece>,
    endpoint: &str,
) -> Response<ServedBody> {
    response(Some(endpoint_event(endpoint)), mcp_server::events(pieces))
}

/// Returns the events of a request of 2026-07-28: without ids, because responses are not resumed.
pub(super) fn plain_events(pieces: mpsc::Receiver<ReplyPiece>) -> Response<ServedBody> {
    response(None, mcp_server::events(pieces))
}

/// Returns a stream without events.
pub(super) fn idle() -> Response<ServedBody> {
    response(Some(COMMENT), stream::pending())
}

/// Returns a response with `preface`, these events, and a comment after each [`COMMENT_EVERY`] without events.
fn response(
    preface: Option<Bytes>,
    events: impl Stream<Item = Bytes> + Send + 'static,
) -> Response<ServedBody> {
    let commented = stream::unfold(Box::pin(events), |mut events| async {
        match timeout(COMMENT_EVERY, events.next()).await {
            Ok(bytes) => Some((bytes?, events)),
            Err(_) => Some((COMMENT, events)),
        }
    });
    event_stream(stream::iter(preface).chain(commented))
}
