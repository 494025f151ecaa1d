//! Requests to a process of this user over its local socket.

use std::future::poll_fn;
use std::io;
use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};

use super::http1::body::Http1Body;
use super::http1::link::Http1Link;
use super::request_body::RequestBody;
use crate::transport::local_socket;

/// A response. Dropping the response before its end closes its connection.
pub struct LocalResponse {
    /// The status of the response.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: HeaderMap,
    body: Http1Body,
}

/// Sends a request for `target` (a path with its query) to the process that owns a socket, and waits for the head of
/// the response. `accept` is the wanted type.
///
/// # Errors
/// If the process has ended, belongs to another user, or its answer is not HTTP.
pub async fn send(
    socket: &Path,
    method: Method,
    target: &str,
    accept: &'static str,
    body: Bytes,
) -> io::Result<LocalResponse> {
    let (read, write) = tokio::io::split(local_socket::connect(socket).await?);
    let mut request = Request::new(RequestBody::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().map_err(io::Error::other)?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    let mut link = Box::new(Http1Link::new(Box::new(tokio::io::join(read, write))));
    link.begin(request);
    let (head, data) = poll_fn(|cx| link.poll_head(cx)).await.map_err(io::Error::other)?;
    let (head, ()) = head.into_parts();
    let body = Http1Body::new(link, data);
    Ok(LocalResponse { status: head.status, headers: head.headers, body })
}

impl LocalResponse {
    /// Returns the next bytes of the body, as soon as they arrive; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn chunk(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            match poll_fn(|cx| self.body.poll_frame(cx)).await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(io::Error::other(error))),
            }
        }
    }
}
