//! Servers whose endpoint has moved to another path of the same origin, often only by a final slash. Milepost follows
//! such a redirect itself, because a client would request the new path from Milepost instead of the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use url::Url;

use super::content::Content;
use crate::observe::log::LogBudget;
use crate::observe::metrics::ServerNotice;
use crate::transport::http::client::{UpstreamBody, UpstreamError};
use crate::transport::http::connection_pool::ConnectionPool;
use crate::transport::http::request_body::RequestBody;

/// Follows the redirects of one endpoint.
pub(crate) struct Redirects {
    /// The URL of the endpoint.
    endpoint: Url,
    /// Whether requests are kept until their response, so that they can be sent again. A response that is not a
    /// redirect turns this off, and a redirect turns it on again.
    expects: AtomicBool,
    /// The path to which the endpoint has moved, once an MCP response has come from that path.
    moved: RwLock<Option<String>>,
    /// Limits the log lines about redirects.
    told: LogBudget,
}

impl Redirects {
    pub(crate) fn new(endpoint: Url) -> Self {
        let (expects, moved) = (AtomicBool::new(true), RwLock::default());
        Self { endpoint, expects, moved, told: LogBudget::one_a_minute() }
    }

    /// Sends a request to the endpoint, or to the path to which the endpoint has moved, and follows one redirect within
    /// the origin.
    ///
    /// # Errors
    /// As [`ConnectionPool::send`]; [`UpstreamError::Redirected`] for a redirect that is not followed, and
    /// [`UpstreamError::Moved`] for a redirect after which the body can no longer be sent again.
    pub(crate) async fn send(
        &self,
        client: &Arc<ConnectionPool>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        // A redirect of the endpoint does not apply to other paths of the server, such as those of a lifecycle.
        if request.uri().path() != self.endpoint.path() {
            return client.send(request).await;
        }
        let moved = self.moved.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(path) = &moved {
            move_to(request.uri_mut(), path, None);
        }
        // Another request may change this value at any time. Then this request is copied needlessly, or answered with
        // `Moved`.
        let expects = self.expects.load(Ordering::Relaxed);
        // Kept only while a redirect is expected, so that later calls are not copied.
        let kept = if expects { copy(&request).map(Box::new) } else { None };
        let response = client.send(request).await?;
        if !response.status().is_redirection() {
            self.note(response.status(), moved.as_deref());
            return Ok(response);
        }
        let asked = moved.as_deref().unwrap_or_else(|| self.endpoint.path());
        match self.place(&response, asked) {
            None => Ok(response),
            // Boxed: a redirect is rare, and would make the future of every call larger.
            Some(place) => Box::pin(self.follow(client, place, kept)).await,
        }
    }

    /// Sends the request `kept` to the target of a redirect.
    async fn follow(
        &self,
        client: &Arc<ConnectionPool>,
        place: Url,
        kept: Option<Box<Request<RequestBody>>>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        // The tokens of clients, and those of the route, are for this origin only.
        if place.origin() != self.endpoint.origin() {
            return Err(redirected("to another origin", &place));
        }
        self.expects.store(true, Ordering::Relaxed);
        let Some(mut again) = kept else {
            // The body has been sent and is not kept, so it cannot be sent again. The next request goes to the new
            // path.
            self.remember(place.path());
            return Err(UpstreamError::Moved);
        };
        move_to(again.uri_mut(), place.path(), place.query());
        client.traffic().notice(ServerNotice::Redirected);
        let response = client.send(*again).await?;
        // A second redirect is an error, because redirects may form a loop.
        if let Some(place) = self.place(&response, place.path()) {
            return Err(redirected("again", &place));
        }
        // Remembered only if the new path answers with MCP, so that a sign-in page does not become the endpoint.
        if speaks_mcp(response.status(), response.headers()) {
            self.remember(place.path());
        }
        Ok(response)
    }

    /// Notes a response that is not a redirect, from the place to which the endpoint has moved, if it has. A stored location that no longer exists (404) is forgotten.
    fn note(&self, status: StatusCode, moved: Option<&str>) {
        // The server may have moved back: the next request asks the endpoint that the route names.
        if moved.is_some() && status == StatusCode::NOT_FOUND {
            *self.moved.write().unwrap_or_else(PoisonError::into_inner) = None;
            self.expects.store(true, Ordering::Relaxed);
        } else if status.is_success() {
            self.expects.store(false, Ordering::Relaxed);
        }
    }

    fn remember(&self, path: &str) {
        if let Some(left_out) = self.told.take(Instant::now()) {
            tracing::warn!(
                server = self.endpoint.origin().ascii_serialization(),
                endpoint = self.endpoint.path(),
                path,
                left_out = (left_out > 0).then_some(left_out),
                "the server redirects to another path, and Milepost follows: name this path in the address of the server"
            );
        }
        *self.moved.write().unwrap_or_else(PoisonError::into_inner) = Some(path.to_owned());
    }

    /// Returns the target of a response that redirects a request for the path `asked`; `None` if it is not followed.
    /// 301 and 302 are only followed if the target only adds a final slash, because they also lead to sign-in pages.
    fn place(&self, response: &Response<UpstreamBody>, asked: &str) -> Option<Url> {
        // RFC 9110, 15.4.8 and 15.4.9: 307 and 308 keep the method. After 301 and 302 clients change POST to GET.
        let is_slash = match response.status() {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => true,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
            _ => return None,
        };
        let place = response.headers().get(header::LOCATION)?.to_str().ok()?;
        let mut base = self.endpoint.clone();
        base.set_path(asked);
        // Relative locations are resolved against the requested path (RFC 9110, 10.2.2).
        let place = base.join(place).ok()?;
        let is_here = place.origin() == self.endpoint.origin();
        let has_new_slash = place.path().trim_end_matches('/') == asked.trim_end_matches('/');
        let is_new = !is_here || place.path() != asked;
        (is_new && (!is_slash || is_here && has_new_slash)).then_some(place)
    }
}

/// Returns the error for a redirect, without the query and the user information, which may be secret.
fn redirected(why: &'static str, place: &Url) -> UpstreamError {
    // Only the origin and the path are shown.
    let to = format!("{}{}", place.origin().ascii_serialization(), place.path());
    UpstreamError::Redirected { why, to }
}

/// Whether a response is an MCP response, and not a sign-in page.
fn speaks_mcp(status: StatusCode, headers: &HeaderMap) -> bool {
    status == StatusCode::ACCEPTED
        || status.is_success() && Content::unpacked(headers) != Content::Other
}

/// Returns a copy of the request, if its whole body is in memory.
fn copy(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let RequestBody::Whole(body) = request.body() else { return None };
    let mut copy = Request::new(RequestBody::Whole(body.clone()));
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}

/// Replaces the path of `uri`. The query becomes `query`, if given, and otherwise stays.
fn move_to(uri: &mut Uri, path: &str, query: Option<&str>) {
    let text = match query.or_else(|| uri.query()) {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let Ok(place) = PathAndQuery::try_from(text) else { return };
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(place);
    *uri = Uri::from_parts(parts).unwrap_or_default();
}
