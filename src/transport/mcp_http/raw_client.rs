//! A plain HTTP client that returns a server's response unchanged: head, then chunks. It repairs nothing and adds no
//! proxy headers.

use std::future::poll_fn;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};

use crate::config::routes::{HeaderRules, Route};
use crate::observe::metrics::Traffic;
use crate::transport::http::client::UpstreamError;
use crate::transport::http::inflate::PlainBody;
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::set_headers::set_headers;
use crate::transport::mcp_http::target::{Target, TargetError, targets};

/// An HTTP server, to which requests are sent as a client sends them.
#[derive(Clone)]
pub struct RawHttpClient {
    target: Target,
    /// Another path of the server, if not that of the target.
    path: Option<PathAndQuery>,
    rules: HeaderRules,
}

impl RawHttpClient {
    /// Returns a client for a route's server, which sends the headers that the route sets. Tokens from files are read
    /// for each request. `None` if the server is not an HTTP server. No connection is made yet.
    ///
    /// # Errors
    /// If the route's certificates cannot be used or its address is not valid.
    pub fn new(route: &Route) -> Result<Option<Self>, TargetError> {
        let (endpoint, sse) = targets(route, None, &Traffic::default())?;
        let rules = route.request_headers.clone();
        Ok(endpoint.or(sse).map(|target| Self { target, path: None, rules }))
    }

    /// Returns a client for another path of the same server.
    #[must_use]
    pub fn at(&self, path: PathAndQuery) -> Self {
        Self { path: Some(path), ..self.clone() }
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// If no connection can be made, or the connection fails before the head arrives.
    pub async fn send(
        &self,
        method: Method,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<RawResponse, UpstreamError> {
        let mut request = Request::new(RequestBody::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = match &self.path {
            Some(path) => self.target.at(path.clone()),
            None => self.target.uri(None),
        };
        let all = request.headers_mut();
        // `Host` goes first, as RFC 9110, 7.2 recommends.
        all.insert(header::HOST, self.target.host.clone());
        let us = concat!("milepost/", env!("CARGO_PKG_VERSION"));
        all.insert(header::USER_AGENT, HeaderValue::from_static(us));
        all.extend(headers);
        // Removed before the route's own headers are set, as in requests of clients.
        for name in &self.rules.remove {
            all.remove(name);
        }
        set_headers(&self.rules, None, all);
        let (head, body) = self.target.client.send(request).await?.into_parts();
        let body = PlainBody::new(body, &head.headers);
        Ok(RawResponse { status: head.status, headers: head.headers, body })
    }
}

/// A response. Dropping the response before its end closes its connection.
pub struct RawResponse {
    /// The status of the response.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: HeaderMap,
    body: Option<PlainBody>,
}

impl RawResponse {
    /// Returns the `Content-Type` in lower case, without parameters; empty if there is none.
    pub fn content_type(&self) -> String {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default();
        kind.trim().to_ascii_lowercase()
    }

    /// Returns the next bytes of the body, as soon as they arrive; `None` at the end, and for a body with an unknown
    /// compression.
    ///
    /// # Errors
    /// If the connection fails, or the compressed body cannot be read.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, UpstreamError>> {
        let body = self.body.as_mut()?;
        poll_fn(|cx| body.poll_data(cx)).await
    }
}
