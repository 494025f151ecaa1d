//! The body of a client's request: held whole if it can be read as a message, else passed on in
//! pieces.

use crate::protocol::jsonrpc::{Kind, Message};
use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::progress::Policy;
use crate::transport::http::headers::remove_body_headers;
use crate::transport::http::request_body::RequestBody;

/// The longest pause of a client within the body of a request.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(30);

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
            PostedBody::Fresh(body) => Self::Passing(VecDeque::new(), Box::new(body)),
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

/// The reason why a request is not forwarded.
#[derive(Debug)]
pub(crate) struct BodyError {
    pub(crate) status: StatusCode,
    pub(crate) why: String,
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

/// Reads a body of at most `max` bytes; one of more than `held_max` is not held.
pub(crate) async fn read(
    body: PostedBody,
    headers: &HeaderMap,
    max: usize,
    held_max: usize,
) -> Result<ReadBody, BodyError> {
    let mut body = match body {
        PostedBody::Fresh(body) => body,
        PostedBody::Read(read) => return Ok(read),
    };
    let too_large = || BodyError {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        why: format!("the body of a request may have {max} bytes on this route"),
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|size| size.to_str().ok());
    let announced = announced.and_then(|size| size.parse::<usize>().ok());
    if announced.is_some_and(|size| size > max) {
        return Err(too_large());
    }
    let mut held: VecDeque<Bytes> = VecDeque::new();
    let mut bytes = 0;
    loop {
        let frame = timeout(PAUSE_MAX, body.frame()).await.map_err(|_| BodyError {
            status: StatusCode::REQUEST_TIMEOUT,
            why: format!("the body of the request paused for more than {PAUSE_MAX:?}"),
        })?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| BodyError {
            status: StatusCode::BAD_REQUEST,
            why: format!("the body of the request cannot be read: {error}"),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        bytes += data.len();
        held.push_back(data);
        if bytes > max {
            return Err(too_large());
        }
        if bytes > held_max {
            // Without a length the rest is not bounded by what was announced.
            return match announced {
                Some(_) => Ok(ReadBody::Large(RequestBody::Passing(held, Box::new(body)))),
                None => Err(BodyError {
                    status: StatusCode::LENGTH_REQUIRED,
                    why: format!("a body of more than {held_max} bytes needs Content-Length"),
                }),
            };
        }
    }
    Ok(ReadBody::Whole(match held.len() {
        1 => held.pop_front().unwrap_or_default(),
        _ => Bytes::from(held.make_contiguous().concat()),
    }))
}
