//! The body of a client's request: held whole if it can be read as a message, else passed on in
//! pieces.

use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;
use std::collections::VecDeque;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::progress::Policy;
use crate::transport::http::headers::remove_body_headers;
use crate::transport::http::request_body::{
    BodyLimits, PAUSE_MAX, PassingBody, RequestBody, RequestBodyError,
};

/// A request's body.
pub(crate) enum ReadBody {
    /// The whole body.
    Whole(Bytes),
    /// More than is looked at.
    Large(RequestBody),
}

/// A request's body on its way to its reader.
pub(crate) enum PostedBody {
    /// The body as it arrived.
    Fresh(Incoming),
    /// Somebody had to read it before.
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

/// Whether a message has requests, which need answers.
pub(crate) fn asks(message: Option<&Message>) -> bool {
    match message {
        // One too large to be read is as likely a request as not.
        None => true,
        Some(message) => match message.kind() {
            Kind::Request => true,
            Kind::Batch => message.elements().any(|one| one.kind() == Kind::Request),
            _ => false,
        },
    }
}

/// The body of a request in the form that its server gets, and the client's message if the body was
/// read whole. `headers` are the headers of the request.
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
                remove_body_headers(headers);
            }
            (Some(message), asked.unwrap_or(bytes).into())
        }
    }
}

/// Reads the body of a request with this head, of at most `max` bytes. One of more than `held_max` is not
/// held, whether or not its length was announced: the rest of it passes, up to `max`.
pub(crate) async fn read(
    body: PostedBody,
    parts: &Parts,
    max: usize,
    held_max: usize,
) -> Result<ReadBody, RequestBodyError> {
    let mut body = match body {
        PostedBody::Fresh(body) => body,
        PostedBody::Read(read) => return Ok(read),
    };
    let limits = BodyLimits::of(parts, max);
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|size| size.to_str().ok());
    let announced = announced.and_then(|size| size.parse::<usize>().ok());
    if announced.is_some_and(|size| size > max) {
        if !BodyLimits::awaits_leave(parts) {
            limits.refuse(body);
        }
        return Err(RequestBodyError::TooLarge(max));
    }
    let mut held: VecDeque<Bytes> = VecDeque::new();
    let mut bytes = 0;
    loop {
        let frame = timeout(PAUSE_MAX, body.frame()).await.map_err(|_| RequestBodyError::Paused)?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| RequestBodyError::Unreadable(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        bytes += data.len();
        held.push_back(data);
        if bytes > max {
            limits.refuse(body);
            return Err(RequestBodyError::TooLarge(max));
        }
        if bytes > held_max {
            let passing = PassingBody::new(held, body, Some(limits));
            return Ok(ReadBody::Large(RequestBody::Passing(Box::new(passing))));
        }
    }
    Ok(ReadBody::Whole(match held.len() {
        1 => held.pop_front().unwrap_or_default(),
        _ => Bytes::from(held.make_contiguous().concat()),
    }))
}

/// Keeps a large body in a file until all of it is there.
pub(crate) async fn spool(body: RequestBody, max: usize) -> Result<RequestBody, RequestBodyError> {
    Ok(body.into_spill(max).await?.into())
}

/// All of a large body, which waits in a file until it is there.
pub(crate) async fn whole(body: RequestBody, max: usize) -> Result<Bytes, RequestBodyError> {
    let spooled = spool(body, max).await?;
    Ok(spooled.collect().await?.to_bytes())
}

/// What a message asks at once, and the cancellations in an array, which count once the server has taken them.
pub(crate) fn cancels_apart(message: &Message) -> (Vec<Message>, Vec<Message>) {
    let cancels = |one: &Message| one.method().as_deref() == Some(mcp::CANCELLED);
    if message.kind() != Kind::Batch || !message.elements().any(|one| cancels(&one)) {
        return (vec![message.clone()], Vec::new());
    }
    let (cancelled, asked) = message.elements().partition(cancels);
    (asked, cancelled)
}
