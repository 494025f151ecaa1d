//! The target of requests: a server's endpoints, the headers of requests, and the name that Milepost gives itself.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

use crate::config::routes::{BearerFile, HeaderRules, Route};
use crate::observe::metrics::{RouteCounts, Traffic};
use crate::relay::legs::ClientHeaders;
use crate::transport::http::client::{InProcess, RouteCredential};
use crate::transport::http::headers;
use crate::transport::http::headers::{Onward, Passage};
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::via::Via;
use crate::transport::mcp_http::header_names::{LAST_EVENT_ID, REVISION, SESSION_ID};
use crate::transport::mcp_http::target::{Target, TargetError, targets};

/// Receives the headers of each client's request that the server answers with success.
pub(crate) type HeadersAccepted = Box<dyn Fn(&HeaderMap) + Send + Sync>;

/// Returns the newest settings of a route; `None` if they have not changed.
pub(crate) type LatestRoute = Box<dyn Fn() -> Option<Arc<Route>> + Send + Sync>;

/// The endpoints of a server, and the settings for requests to them.
pub struct UpstreamTarget {
    /// The server's Streamable HTTP endpoint, or an endpoint whose transport is not known yet.
    pub(crate) endpoint: Option<Target>,
    /// The server's HTTP+SSE endpoint.
    pub(crate) sse: Option<Target>,
    rules: HeaderRules,
    /// Returns the newest settings of the route, whose rules for headers may change while the route is served.
    latest: LatestRoute,
    via: Via,
    bearer: Option<BearerFile>,
    /// The longest client message, in bytes; a longer one is refused.
    pub(crate) message_max: usize,
    /// The time without a byte from the server after which a stream is given up.
    pub(crate) idle: Option<Duration>,
    /// Deadline for the server to renew a lost session.
    pub(crate) renewal_timeout: Duration,
    /// The counters of the route, for failures.
    pub(crate) counts: Option<Arc<RouteCounts>>,
    /// Receives the headers of requests that the server accepts.
    pub(crate) accepted: Option<HeadersAccepted>,
}

impl UpstreamTarget {
    /// Returns a target for the server of a route, without connecting. `connect` replaces the network.
    ///
    /// # Errors
    /// If the route's certificates cannot be used, or its URL is not valid.
    pub fn new(
        route: &Route,
        via: Via,
        bearer: Option<BearerFile>,
        connect: Option<&InProcess>,
    ) -> Result<Self, TargetError> {
        let (endpoint, sse) = targets(route, connect, &Traffic::default())?;
        Ok(Self {
            endpoint,
            sse,
            rules: route.request_headers.clone(),
            latest: Box::new(|| None),
            via,
            bearer,
            message_max: route.max_request_bytes,
            idle: route.idle_timeout,
            renewal_timeout: route.own_request_timeout,
            counts: None,
            accepted: None,
        })
    }

    /// The target of a served route. `latest` finds the route's newest settings.
    pub(crate) fn served(
        route: &Route,
        (endpoint, sse): (Option<Target>, Option<Target>),
        latest: LatestRoute,
        via: &Via,
        counts: &Arc<RouteCounts>,
    ) -> Self {
        Self {
            endpoint,
            sse,
            rules: route.request_headers.clone(),
            latest,
            via: via.clone(),
            bearer: None,
            message_max: route.max_request_bytes,
            idle: route.idle_timeout,
            renewal_timeout: route.own_request_timeout,
            counts: Some(Arc::clone(counts)),
            accepted: None,
        }
    }

    /// Makes `accepted` receive the headers of each client's request that the server answers with success.
    pub(crate) fn telling(self, accepted: Option<HeadersAccepted>) -> Self {
        Self { accepted, ..self }
    }

    /// Returns the endpoint of HTTP+SSE, or else the endpoint whose transport is not known yet.
    pub(crate) fn sse_endpoint(&self) -> Option<&Target> {
        self.sse.as_ref().or(self.endpoint.as_ref())
    }

    /// Returns a request with those headers of the client that are for the server, and with the headers `own`.
    ///
    /// # Errors
    /// The reason, as text, why the request cannot be made.
    pub(crate) fn request(
        &self,
        target: &Target,
        uri: Uri,
        method: Method,
        client: &ClientHeaders,
        own: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: RequestBody,
    ) -> Result<Request<RequestBody>, String> {
        let mut all = HeaderMap::new();
        if let Some(client) = client {
            for (name, value) in client.iter().filter(|(name, _)| !is_of_the_transport(name)) {
                all.append(name, value.clone());
            }
        }
        if !all.contains_key(USER_AGENT) {
            let us = concat!("milepost/", env!("CARGO_PKG_VERSION"));
            all.insert(USER_AGENT, HeaderValue::from_static(us));
        }
        all.extend(own);
        // Look the rules up for each request, because they may change at a reload.
        let latest = (self.latest)();
        let passage = Passage {
            via: &self.via,
            rules: latest.as_ref().map_or(&self.rules, |route| &route.request_headers),
            received: Version::HTTP_11,
            // The body is made from the message, so headers about the client's body are removed.
            body_changes: true,
            traffic: self.counts.as_ref().map(|counts| counts.traffic()),
        };
        let onward = Onward {
            host: Some(&target.host),
            opaque: false,
            // The token of the file replaces the `Authorization` of clients.
            replaces_authorization: self.bearer.is_some(),
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers::request_headers(all, &passage, &onward);
        if self.counts.is_some() {
            // The client of `wrap` has set the credential itself, and reads the server's answer itself.
            RouteCredential::mark(&mut request, passage.rules);
        }
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer.header()?);
        }
        Ok(request)
    }
}

/// Whether a header of a client's request belongs to the client's transport and not to the message.
fn is_of_the_transport(name: &HeaderName) -> bool {
    [ACCEPT, CONTENT_TYPE, CONTENT_ENCODING, SESSION_ID, LAST_EVENT_ID].contains(name)
        || *name == REVISION
        || name.as_str() == "mcp-method"
        || name.as_str() == "mcp-name"
        || name.as_str().starts_with("mcp-param-")
}
