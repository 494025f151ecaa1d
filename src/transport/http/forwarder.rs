//! Forwards requests and responses with the header rules of their route, and with `Via`.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    response,
};

use super::body::Body;
use super::client::{RouteCredential, UpstreamBody};
use super::headers::{
    Onward, Passage, move_cookies, onward_headers, remove_body_headers, response_headers,
};
use super::in_flight::InFlightGuard;
use super::public_metadata;
use super::request_body::RequestBody;
use super::via::Via;
use crate::config::routes::Route;
use crate::observe::metrics::Traffic;
use crate::transport::mcp_http::content::Content;

/// The header that asks a front such as nginx not to buffer a response.
pub(crate) const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The origin of the body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyOrigin {
    /// The server's own body, unchanged.
    Server,
    /// A body that Milepost has written or changed.
    Milepost,
}

/// Forwards the requests and responses of one route.
pub(crate) struct Forwarder {
    pub(crate) via: Via,
    route: Arc<Route>,
    traffic: Traffic,
}

impl Forwarder {
    /// Returns the forwarder of `route`. `traffic` counts notices about the server.
    pub(crate) fn new(via: Via, route: &Arc<Route>, traffic: &Traffic) -> Self {
        Self { via, route: Arc::clone(route), traffic: traffic.clone() }
    }

    /// The request for the server.
    pub(crate) fn request(
        &self,
        address: (&HeaderValue, Uri),
        parts: Parts,
        body: RequestBody,
    ) -> Request<RequestBody> {
        let head = (parts.method, parts.version);
        self.marked(self.onward(address, head, Cow::Owned(parts.headers), body))
    }

    /// Returns the same as [`Forwarder::request`] for a request whose headers are needed again.
    pub(crate) fn copied_request(
        &self,
        address: (&HeaderValue, Uri),
        parts: &Parts,
        body: RequestBody,
    ) -> Request<RequestBody> {
        let head = (parts.method.clone(), parts.version);
        self.marked(self.onward(address, head, Cow::Borrowed(&parts.headers), body))
    }

    /// A POST of Milepost's own, with the headers of a client's request in this version of HTTP.
    pub(crate) fn own_request(
        &self,
        address: (&HeaderValue, Uri),
        (version, headers): (Version, &HeaderMap),
        body: RequestBody,
    ) -> Request<RequestBody> {
        let head = (Method::POST, version);
        let mut request = self.onward(address, head, Cow::Borrowed(headers), body);
        // They are about the body of the client.
        remove_body_headers(request.headers_mut());
        request
    }

    fn onward(
        &self,
        (host, uri): (&HeaderValue, Uri),
        (method, version): (Method, Version),
        headers: Cow<'_, HeaderMap>,
        body: RequestBody,
    ) -> Request<RequestBody> {
        let passage = Passage {
            via: &self.via,
            rules: &self.route.request_headers,
            received: version,
            // No body is sent, so headers that describe the client's body must not be sent either.
            body_changes: matches!(body, RequestBody::Whole(None)),
            traffic: Some(&self.traffic),
        };
        let onward =
            Onward { host: Some(host), opaque: self.route.opaque, replaces_authorization: false };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = onward_headers(headers, &passage, &onward);
        request
    }

    fn marked(&self, mut request: Request<RequestBody>) -> Request<RequestBody> {
        // On an opaque route a 401 reaches the client unchanged, whoever has set the credential.
        if !self.route.opaque {
            RouteCredential::mark(&mut request, &self.route.request_headers);
        }
        request
    }

    /// Returns the server's response, unchanged. `open` counts the call until the end of the body.
    pub(crate) fn piped(
        &self,
        response: Response<UpstreamBody>,
        open: Option<InFlightGuard>,
    ) -> Response<Body> {
        let (parts, body) = response.into_parts();
        self.response(parts, BodyOrigin::Server, Body::piped(None, body, open))
    }

    /// The server's status and headers with a body.
    pub(crate) fn response(
        &self,
        parts: response::Parts,
        source: BodyOrigin,
        body: Body,
    ) -> Response<Body> {
        let passage = Passage {
            via: &self.via,
            rules: &self.route.response_headers,
            received: parts.version,
            body_changes: source == BodyOrigin::Milepost,
            traffic: None,
        };
        let mut response = Response::new(body);
        *response.status_mut() = parts.status;
        let events =
            parts.status == StatusCode::OK && Content::of(&parts.headers) == Content::Events;
        let mut headers = response_headers(parts.headers, &passage);
        if self.route.response_headers.cookie_path {
            move_cookies(&mut headers, self.route.upstream_path(), self.route.public_path());
        }
        if let Some(public) = &self.route.public_url {
            public_metadata::rewrite_challenges(&mut headers, public);
        }
        let is_removed = self.route.response_headers.remove.contains(&X_ACCEL_BUFFERING);
        if events && !self.route.opaque && !is_removed {
            // nginx buffers responses by default, which delays events. A value that the server has set stays.
            headers.entry(X_ACCEL_BUFFERING).or_insert(HeaderValue::from_static("no"));
        }
        *response.headers_mut() = headers;
        response
    }
}
