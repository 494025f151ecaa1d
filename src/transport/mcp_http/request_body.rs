//! Reads the body of a client's request: as a whole if it can be read as a message, else in pieces that are passed on.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::body::Incoming;
use smallvec::{SmallVec, smallvec};
use tokio::time::{Instant, timeout_at};

use crate::progress::{BATCH_MAX, Policy};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;
use crate::transport::http::headers::remove_body_headers;
use crate::transport::http::request_body::{
    BodyLimits, BodyPace, PassingBody, RequestBody, RequestBodyError,
};

/// Frames of a body with fewer bytes than this are copied into one buffer.
const SMALL_FRAME: usize = 4 << 10;

/// A request's body, as far as it was read.
pub(crate) enum ReadBody {
    /// The whole body.
    Whole(Bytes),
    /// A body that is too large to be read as a message.
    Large(RequestBody),
}

/// A request's body, before or after it was read.
pub(crate) enum PostedBody {
    /// The body as it arrives, not read yet.
    Fresh(Incoming),
    /// A body that had to be read before its handler was known.
    Read(ReadBody),
}

impl From<PostedBody> for RequestBody {
    fn from(posted: PostedBody) -> Self {
        match posted {
            PostedBody::Fresh(body) => Self::unlimited(body),
            PostedBody::Read(ReadBody::Whole(bytes)) => bytes.into(),
            PostedBody::Read(ReadBody::Large(body)) => body,
        }
    }
}

/// Whether a message contains requests, which need answers.
pub(crate) fn asks(message: Option<&Message>) -> bool {
    match message {
        // A message that is too large to be parsed may be a request.
        None => true,
        Some(message) => match message.kind() {
            Kind::Request => true,
            Kind::Batch => message.elements().any(|one| one.kind() == Kind::Request),
            _ => false,
        },
    }
}

/// Returns the body of a request for the server, and the client's message if the whole body was read. `headers` are the
/// headers of the request, which are changed with the body.
pub(crate) fn for_server(
    read: ReadBody,
    policy: &Policy,
    headers: &mut HeaderMap,
) -> (Option<Message>, RequestBody) {
    match read {
        ReadBody::Large(body) => (None, body),
        ReadBody::Whole(bytes) => {
            let message = Message::parse(bytes.clone());
            let asked = policy.with_members(&message);
            if asked.is_some() {
                // The body has more members now, so headers such as its length no longer fit.
                remove_body_headers(headers);
            }
            (Some(message), asked.unwrap_or(bytes).into())
        }
    }
}

/// Reads the body of a request with this head within its limits. A body longer than `held_max` is not kept in memory,
/// even if its length was not announced: the rest is forwarded while it arrives.
pub(crate) fn read(
    body: PostedBody,
    parts: &Parts,
    limits: BodyLimits,
    held_max: usize,
) -> impl Future<Output = Result<ReadBody, RequestBodyError>> + Send {
    let max = limits.max;
    // An `async` block, because the future of an `async fn` would store its arguments twice.
    async move {
        let mut body = match body {
            PostedBody::Fresh(body) => body,
            PostedBody::Read(read) => return Ok(read),
        };
        let announced =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|size| size.to_str().ok());
        let announced = announced.and_then(|size| size.parse::<usize>().ok());
        // The announced length is enough to refuse a body before it is read.
        if announced.is_some_and(|size| size > max) {
            // A client that waits for `100 Continue` has not sent the body, so there is nothing to read.
            if !BodyLimits::awaits_leave(parts) {
                limits.refuse(body);
            }
            return Err(RequestBodyError::TooLarge(max));
        }
        let mut held: VecDeque<Bytes> = VecDeque::new();
        let mut gathered = BytesMut::new();
        let mut bytes = 0;
        let (mut pace, mut room) = (BodyPace::default(), limits.budget.room());
        loop {
            let frame = match body.frame().now_or_never() {
                // Most bodies arrive together with their heads and need no timer, so no memory is reserved for one.
                Some(frame) => frame,
                None => {
                    let deadline = pace.wait(Instant::now(), &limits);
                    let Ok(frame) = Box::pin(timeout_at(deadline, body.frame())).await else {
                        return Err(pace.error(Instant::now(), &limits));
                    };
                    pace.stop_waiting(Instant::now());
                    frame
                }
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| RequestBodyError::Unreadable(error.to_string()))?;
            // Trailers are not part of a message.
            let Ok(data) = frame.into_data() else { continue };
            bytes += data.len();
            pace.bytes = bytes as u64;
            // The body is complete with the last frame, which does not wait and so is not counted in the budget.
            if !body.is_end_stream()
                && let Err(no_room) = room.hold(data.len())
            {
                limits.refuse(body);
                return Err(no_room.into());
            }
            hold(&mut held, &mut gathered, data);
            if bytes > max {
                limits.refuse(body);
                return Err(RequestBodyError::TooLarge(max));
            }
            // No further poll is needed, because the last frame has announced the end.
            if bytes <= held_max && body.is_end_stream() {
                break;
            }
            if bytes > held_max {
                held.extend((!gathered.is_empty()).then(|| gathered.freeze()));
                // The limits apply to the whole body, so the bytes and the pace so far are passed on.
                let passing = PassingBody::new(held, body, (limits, pace, room));
                return Ok(ReadBody::Large(RequestBody::Passing(Box::new(passing))));
            }
        }
        if held.is_empty() {
            return Ok(ReadBody::Whole(gathered.freeze()));
        }
        held.extend((!gathered.is_empty()).then(|| gathered.freeze()));
        // A single frame is returned without a copy.
        Ok(ReadBody::Whole(match held.len() {
            1 => held.pop_front().unwrap_or_default(),
            _ => Bytes::from(held.make_contiguous().concat()),
        }))
    }
}

/// Adds a frame after the others. Small frames are copied together, because each would keep the whole buffer in which
/// it arrived.
fn hold(held: &mut VecDeque<Bytes>, gathered: &mut BytesMut, frame: Bytes) {
    if frame.len() < SMALL_FRAME {
        return gathered.extend_from_slice(&frame);
    }
    if !gathered.is_empty() {
        held.push_back(gathered.split().freeze());
    }
    held.push_back(frame);
}

/// Reads a large body completely, which is collected in a file.
pub(crate) async fn whole(body: RequestBody, max: usize) -> Result<Bytes, RequestBodyError> {
    let spooled = body.spool(max).await?;
    Ok(spooled.collect().await?.to_bytes())
}

/// Returns the requests of a message, and separately the cancellations in an array, which take effect once the server
/// has accepted the POST.
pub(crate) fn cancels_apart(message: &Message) -> (SmallVec<[Message; 1]>, Vec<Message>) {
    let cancels = |one: &Message| one.is_method(mcp::CANCELLED);
    // A single message is what nearly all clients send.
    if message.kind() != Kind::Batch || !message.elements().any(|one| cancels(&one)) {
        return (smallvec![message.clone()], Vec::new());
    }
    let (cancelled, asked): (Vec<Message>, Vec<Message>) = message.elements().partition(cancels);
    (asked.into(), cancelled)
}

/// Returns the cancellations in a message of a client: the message itself, or those in an array.
pub(crate) fn cancels_in(message: &Message) -> Vec<Message> {
    let cancels = |one: &Message| one.is_method(mcp::CANCELLED);
    match message.kind() {
        // A client may send an array of any length, so only a limited number of elements is examined.
        Kind::Batch => message.elements().take(BATCH_MAX).filter(cancels).collect(),
        _ => Some(message).filter(|one| cancels(one)).cloned().into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_frames_are_held_in_one_buffer() {
        let (mut held, mut gathered) = (VecDeque::new(), BytesMut::new());
        let mut sent = Vec::new();
        for frame in ["a".repeat(3), "b".repeat(SMALL_FRAME), "c".into(), "d".into()] {
            sent.extend_from_slice(frame.as_bytes());
            hold(&mut held, &mut gathered, Bytes::from(frame));
        }
        for _ in 0..10_000 {
            hold(&mut held, &mut gathered, Bytes::from_static(b"e"));
        }
        sent.extend(std::iter::repeat_n(b'e', 10_000));
        held.push_back(gathered.freeze());
        assert_eq!(held.iter().map(Bytes::len).collect::<Vec<_>>(), [3, SMALL_FRAME, 10_002]);
        assert_eq!(held.make_contiguous().concat(), sent);
    }
}
