//! Requests to a process of this user over its local socket.

use std::error::Error;
use std::io;
use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::transport::local_socket;

/// A response. Dropping the response before its end closes its connection.
#[derive(Debug)]
pub struct LocalResponse {
    /// The status of the response.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: HeaderMap,
    body: Incoming,
}

/// Sends a request for `target` (a path with its query) to the process of a socket, and waits for the head of the
/// response. `accept` is the wanted type.
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
    let stream = local_socket::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // Ends by itself: once the body is read or dropped, nothing uses the connection.
    tokio::spawn(connection);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().map_err(failed)?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    let (head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
    Ok(LocalResponse { status: head.status, headers: head.headers, body })
}

impl LocalResponse {
    /// The next bytes of the body, as soon as they arrive; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn chunk(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(failed(error))),
            }
        }
    }
}

fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}
