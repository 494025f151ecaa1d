//! The dispatcher: everything that happens to a request before its handler, and to a response after it.

use std::error::Error;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::{FutureExt, future};
use http::header::{CONNECTION, EXPECT, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::handler::{Admitted, Handler, Peer};
use crate::config::routes::{Cors, Route, Server};
use crate::config::values::ip_net::IpNet;
use crate::gateway::fleet::peers::LEAVING;
use crate::gateway::listen::admission::{
    admit, admit_body, admit_page, authorize, loopback_name, principal,
};
use crate::gateway::listen::foreign_headers::foreign_headers;
use crate::gateway::live_routes::ServedRoute;
use crate::observe::log::{LogBudget, may_log_refusal};
use crate::transport::http::cors;
use crate::transport::http::endpoints::{EndpointKind, RouteTable};
use crate::transport::http::refusal::Refusal;
use crate::transport::http::via::Via;

/// Limit of the bytes that are read of a refused request's body. If the connection closed while the client still
/// writes, the client could lose the answer with the reason.
const REFUSED_BYTES_MAX: usize = 256 << 10;

/// Deadline for reading a refused body.
const REFUSED_BODY: Duration = Duration::from_millis(500);

/// Limit of the characters of a refused header value that are logged. The rest is cut off.
const TOLD_MAX: usize = 100;

/// Handles every request to the listener before and after its handler.
pub(super) struct Dispatcher<H> {
    // Settings are exchanged by pointer: a request loads this value once, without taking a lock, and keeps the state of
    // its route. Sessions and streams last longer than a request: before they handle a client message they check
    // whether the settings have changed, and then give their filter the new policy.
    config: ArcSwap<ServingConfig>,
    via: Via,
    handler: Arc<H>,
    open: Arc<AtomicUsize>,
    /// Whether the listener will close soon: see [`Dispatcher::linger`].
    is_lingering: AtomicBool,
}

/// The durations of the two phases of a shutdown.
pub(super) struct StopTimes {
    /// The time for which the listener still serves requests, although it reports that it is not ready.
    pub(super) linger: Duration,
    /// The time for which open calls may continue after that.
    pub(super) drain: Duration,
}

/// The settings for new requests. They are replaced as a whole, so that no request sees some old and some new ones.
pub(super) struct ServingConfig {
    server: Server,
    trusted_proxies: Arc<[IpNet]>,
    endpoints: RouteTable,
    cors: Vec<Option<Arc<Cors>>>,
    served: Vec<ServedRoute>,
}

impl ServingConfig {
    fn new<'a>(server: Server, routes: impl IntoIterator<Item = (&'a Route, bool)>) -> Self {
        let (mut endpoints, mut cors) = (RouteTable::default(), Vec::new());
        for (route, late) in routes {
            if late {
                endpoints.enter_late(route);
            } else {
                endpoints.enter(route);
            }
            cors.push(route.cors.clone().map(Arc::new));
        }
        let trusted_proxies = Arc::from(&*server.trusted_proxies);
        Self { server, trusted_proxies, endpoints, cors, served: Vec::new() }
    }

    /// Returns the dispatcher of a listener with these routes.
    pub(super) fn of(server: Server, served: Vec<ServedRoute>) -> Self {
        let routes = served.iter().map(|served| (served.route(), served.is_removed()));
        let config = Self::new(server, routes);
        Self { served, ..config }
    }
}

/// The route of a request, whose CORS headers the response gets.
struct MatchedRoute {
    route: usize,
    cors: Option<Arc<Cors>>,
}

/// What is done with a request.
enum Decision {
    Handle(Admitted),
    Answered(Response<()>),
}

impl<H: Handler> Dispatcher<H> {
    pub(super) fn new<'a>(
        server: Server,
        via: Via,
        routes: impl IntoIterator<Item = &'a Route> + Clone,
        handler: Arc<H>,
    ) -> Self {
        let routes = routes.into_iter().map(|route| (route, false));
        let config =
            ServingConfig { served: handler.served(), ..ServingConfig::new(server, routes) };
        let (config, open) = (ArcSwap::from_pointee(config), Arc::default());
        Self { config, via, handler, open, is_lingering: AtomicBool::new(false) }
    }

    /// Applies new settings to later requests.
    pub(super) fn set_config(&self, config: ServingConfig) {
        self.config.store(Arc::new(config));
    }

    /// Returns the durations for a shutdown that begins now.
    pub(super) fn stop_times(&self) -> StopTimes {
        let config = self.config.load();
        StopTimes { linger: config.server.linger, drain: config.server.drain }
    }

    /// Asks the client of each HTTP/1.1 response, from now on, to use another connection. Otherwise the listener might
    /// close a connection while its client sends the next request.
    pub(super) fn linger(&self) {
        self.is_lingering.store(true, Ordering::Relaxed);
        self.handler.linger();
    }

    /// Lets only open requests continue from now on. Other replicas may still pass on requests for their sessions.
    pub(super) fn drain(&self) {
        self.is_lingering.store(true, Ordering::Relaxed);
        self.handler.drain();
    }

    /// Returns the number of requests whose response has not ended.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Answers one request. Decisions that need no waiting are made before the future is created, which keeps it small.
    pub(super) fn answer(
        self: Arc<Self>,
        client: Peer,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<AnswerBody<H::Body>>> + Send + use<H> {
        let open = OpenRequest::enter(&self.open);
        let (mut parts, body) = request.into_parts();
        let (method, version) = (parts.method.clone(), parts.version);
        let origin = parts.headers.get(ORIGIN).cloned();
        let mut found = None;
        let response = match self.course(&client, &parts, &mut found) {
            Ok(Decision::Handle(admitted)) => {
                if let Some(name) = admitted.client.name.clone() {
                    parts.extensions.insert(name);
                }
                let request = Request::from_parts(parts, body);
                let route = found.as_ref().map(|found| found.route);
                future::Either::Left(handled(&self.handler, request, admitted, method, route))
            }
            Ok(Decision::Answered(answer)) => {
                let answer = answer.map(|()| Either::Left(Full::default()));
                future::Either::Right(future::Either::Left(ready(answer)))
            }
            Err(refusal) => {
                note(refusal, &parts, &client);
                self.handler.count_refusal(refusal);
                // Boxed: a refusal is rare, and would make the future of every answer larger.
                let refused = Box::pin(async move {
                    read_some(&parts, body).await;
                    refusal.response(&method).map(Either::Left)
                });
                future::Either::Right(future::Either::Right(refused))
            }
        };
        response.map(move |mut response| {
            if let Some(MatchedRoute { cors, .. }) = found {
                cors::answer(cors.as_deref(), origin.as_ref(), response.headers_mut());
            }
            if version < Version::HTTP_2 && self.is_lingering.load(Ordering::Relaxed) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response.map(|body| AnswerBody { body, _open: open })
        })
    }

    /// Answers a request that another replica passes on. It is admitted as if its client had sent it to this replica.
    pub(super) async fn answer_passed_on(
        self: Arc<Self>,
        peer: Peer,
        request: Request<Incoming>,
    ) -> Response<AnswerBody<H::Body>> {
        let (mut parts, body) = request.into_parts();
        match self.handler.passed_on(peer, &mut parts) {
            Ok(client) => {
                let front = Arc::clone(&self);
                let mut response = self.answer(client, Request::from_parts(parts, body)).await;
                // Only a replica may set this header, so a header of this name from a server is removed.
                response.headers_mut().remove(LEAVING);
                if front.is_lingering.load(Ordering::Relaxed) {
                    response.headers_mut().insert(LEAVING, HeaderValue::from_static("1"));
                }
                response
            }
            Err(refusal) => {
                let open = OpenRequest::enter(&self.open);
                self.handler.count_refusal(refusal);
                read_some(&parts, body).await;
                let response = refusal.response(&parts.method).map(Either::Left);
                response.map(|body| AnswerBody { body, _open: open })
            }
        }
    }

    /// Decides what is done with a request. `found` is set to the route whose CORS headers the response gets.
    fn course(
        &self,
        client: &Peer,
        parts: &Parts,
        found: &mut Option<MatchedRoute>,
    ) -> Result<Decision, Refusal> {
        let config = self.config.load();
        // Host and origin are checked first, because a page of any site can send requests to this listener (DNS
        // rebinding).
        admit(&config.server, &self.via, client.local, parts)?;
        admit_page(&config.server, parts)?;
        let route_match = config.endpoints.find(parts.uri.path());
        if let Some(route_match) = &route_match {
            // A preflight has no token: the browser sends it before the request of its page (Fetch, CORS protocol).
            let cors = config.cors.get(route_match.route).cloned().flatten();
            if let Some(cors) = &cors
                && cors::is_preflight(&parts.method, &parts.headers)
            {
                return Ok(Decision::Answered(cors::preflight(cors, &parts.headers)));
            }
            *found = Some(MatchedRoute { route: route_match.route, cors });
        }
        // Authorise before routing: an unauthorised client must not learn which paths exist.
        let authorization_was_ours = authorize(config.server.bearer.as_ref(), &parts.headers)?;
        let route_match = route_match.ok_or(Refusal::NoRoute)?;
        let reads = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        if matches!(route_match.part, EndpointKind::WellKnown(_)) && !reads {
            return Err(Refusal::ReadOnly);
        }
        let served = config.served.get(route_match.route).cloned();
        if !served.as_ref().is_some_and(|served| served.route().opaque) {
            admit_body(&config.server, parts)?;
        }
        let named = principal(&config.server, client, parts)?;
        let route = served.as_ref().map(ServedRoute::route);
        let mut foreign_headers = foreign_headers(&config.server, route, &parts.headers);
        foreign_headers.extend(named.foreign);
        Ok(Decision::Handle(Admitted {
            route_match,
            served,
            client: Peer { name: named.name, ..client.clone() },
            trusted_proxies: Arc::clone(&config.trusted_proxies),
            foreign_headers,
            authorization_was_ours,
        }))
    }
}

/// Returns the answer of the handler. After a panic the state of the request is dropped, so that no later request sees
/// it incomplete.
fn handled<H: Handler>(
    handler: &Arc<H>,
    request: Request<Incoming>,
    admitted: Admitted,
    method: Method,
    route: Option<usize>,
) -> impl Future<Output = Response<Either<Full<Bytes>, H::Body>>> + Send + use<H> {
    let begun = catch_unwind(AssertUnwindSafe(|| handler.handle(request, admitted)));
    // Not an `async` function, whose future would contain the other future twice.
    let handled = match begun {
        Ok(begun) => future::Either::Left(AssertUnwindSafe(begun).catch_unwind()),
        Err(panic) => future::Either::Right(ready(Err(panic))),
    };
    handled.map(move |handled| match handled {
        Ok(response) => response.map(Either::Right),
        Err(_) => {
            error!(route, "a request has failed by a fault of ours");
            Refusal::Fault.response(&method).map(Either::Left)
        }
    })
}

/// Writes one log line about a refused request, unless too many were written. Paths and queries may be private.
fn note(refusal: Refusal, parts: &Parts, client: &Peer) {
    if refusal == Refusal::Host {
        tell_of_loopback_name(parts);
    }
    let Some(left_out) = may_log_refusal() else { return };
    let header = |name: HeaderName| {
        let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
        // The text before `@` may be a password.
        let value = value.map(|text| text.rsplit('@').next().unwrap_or_default());
        value.map(|text| text.chars().take(TOLD_MAX).collect::<String>())
    };
    info!(
        reason = refusal.name(),
        status = refusal.status().as_u16(),
        method = parts.method.as_str(),
        host = header(HOST).or_else(|| Some(parts.uri.authority()?.as_str().rsplit('@').next()?.to_owned())),
        origin = header(ORIGIN),
        from = %client.remote.ip(),
        left_out = (left_out > 0).then_some(left_out),
        "refused"
    );
}

/// Logs that a loopback name was refused, and what to change.
fn tell_of_loopback_name(parts: &Parts) {
    static TOLD: LogBudget = LogBudget::one_a_minute();
    if let Some(host) = loopback_name(parts)
        && let Some(left_out) = TOLD.take(Instant::now())
    {
        warn!(
            host,
            left_out = (left_out > 0).then_some(left_out),
            "refused: clients name a loopback host, which only a listener on a loopback address answers to: add the \
             name to `allowed_hosts` of [server]"
        );
    }
}

/// Reads the beginning of a refused body, so that the client gets the answer.
async fn read_some(parts: &Parts, body: Incoming) {
    // A client that waits for `100 Continue` has not sent the body.
    if !body.is_end_stream() && !parts.headers.contains_key(EXPECT) {
        let mut body = Limited::new(body, REFUSED_BYTES_MAX);
        let end = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = timeout(REFUSED_BODY, end).await;
    }
}

/// A request that has not been answered to its end.
struct OpenRequest {
    open: Arc<AtomicUsize>,
}

impl OpenRequest {
    fn enter(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self { open: Arc::clone(count) }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer, made by Milepost or by the handler.
pub(super) struct AnswerBody<B> {
    body: Either<Full<Bytes>, B>,
    _open: OpenRequest,
}

impl<B> Body for AnswerBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
