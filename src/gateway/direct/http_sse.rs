//! HTTP+SSE of 2024-11-05: one stream for everything the server says, and an endpoint to post to that
//! the server names in its first event. Both lie under the route's path for the client.

use crate::transport::mcp_http::sse_endpoint::same_origin;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode};

use super::mailbox::Mailbox;
use crate::gateway::direct::control::Tell;
use crate::gateway::direct::event_stream::{EventStream, Judge, Silence, passed_on};
use crate::gateway::dispatch::Proxy;
use crate::gateway::refusals::{refuse, text, unreachable};
use crate::gateway::route_state::{Following, Site};
use crate::observe::events::Scope;
use crate::observe::log::Connection;
use crate::progress::input::Input;
use crate::progress::{Disposition, Filter, FilterEvent, Origin, Policy, StreamId, StreamKind};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::lines::INSPECT_MAX;
use crate::protocol::mcp;
use crate::protocol::sse::{Event, Piece};
use crate::protocol::trace_context::TraceContext;
use crate::relay::filter_guard::FilterGuard;
use crate::relay::trace_of;
use crate::transport::clock::now;
use crate::transport::http::body::{Batch, Body};
use crate::transport::http::client::UpstreamError;
use crate::transport::http::in_flight::{Calls, OpenCall};
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::write_state::Outlet;
use crate::transport::mcp_http::event_message::{message_in, text_of};
use crate::transport::mcp_http::request_body;
use crate::transport::mcp_http::request_body::{Posted, asks};
use crate::transport::mcp_http::target::Target;

/// The only client stream of a wire.
const WIRE: StreamId = StreamId(0);

/// What we add to an endpoint that would otherwise be the same for several clients.
const OWN_KEY: &str = "milepost_stream";

/// One stream and the requests that were posted for it.
struct Wire {
    state: Mutex<State>,
    reader: Mailbox,
}

struct State {
    filter: FilterGuard,
    following: Following,
    log: Connection,
    calls: Arc<Calls>,
    /// While requests are open.
    open: Option<OpenCall>,
    /// How the server is told that a request has taken too long: as it was told of the last one.
    tell: Option<Tell>,
}

impl State {
    /// Whether what the server says goes on as it came.
    fn observes(&mut self) -> bool {
        self.filter.try_with(|filter| filter.policy().observes()) == Some(true)
    }

    /// What is asked from now on goes by what holds for the route now.
    fn settle(&mut self) {
        self.following.has_changed();
        self.filter.take(&self.following.site().policy);
    }

    fn count(&mut self) {
        match self.filter.open_calls() {
            0 => self.open = None,
            _ if self.open.is_none() => self.open = Some(self.calls.open()),
            _ => {}
        }
    }
}

impl Wire {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where posts for a stream go.
#[derive(Clone)]
struct Endpoint {
    wire: Arc<Wire>,
    on_server: PathAndQuery,
}

/// The open streams of a route, by the query of the endpoint that their client was given.
#[derive(Default)]
pub(crate) struct Wires {
    known: Mutex<HashMap<String, Endpoint>>,
}

impl Wires {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Endpoint>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is one with an endpoint of this query.
    pub(crate) fn knows(&self, query: &str) -> bool {
        self.lock().contains_key(query)
    }

    /// Enters a stream under the query of its endpoint, or under one of ours.
    fn enter(&self, endpoint: Endpoint) -> Option<String> {
        let mut known = self.lock();
        let query = endpoint.on_server.query().unwrap_or_default();
        let key = if query.is_empty() || known.contains_key(query) {
            let mut random = [0; 16];
            getrandom::fill(&mut random).ok()?;
            let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            let own = format!("{OWN_KEY}={name}");
            if query.is_empty() { own } else { format!("{query}&{own}") }
        } else {
            query.to_owned()
        };
        known.insert(key.clone(), endpoint);
        Some(key)
    }
}

/// Reads the server's side of a wire.
struct Speaking {
    site: Arc<Site>,
    wire: Arc<Wire>,
    /// Under which posts find the wire, once the server has named its endpoint.
    key: Option<String>,
    refused: bool,
}

impl Speaking {
    fn observes(&self) -> bool {
        self.wire.lock().observes()
    }

    fn announce(&mut self, named: &[u8], out: &mut Batch) {
        let base = self.site.sse.as_ref().and_then(|target| target.url.as_ref());
        let endpoint = base.and_then(|base| same_origin(base, named));
        let Some(on_server) = endpoint else {
            // What stands behind that may be a secret.
            let named = std::str::from_utf8(named).ok().and_then(|named| base?.join(named).ok());
            tracing::error!(
                route = self.site.route.path,
                origin = named.map(|named| named.origin().ascii_serialization()),
                "the server names an endpoint of another origin; its stream is closed"
            );
            self.refused = true;
            return;
        };
        let wire = Arc::clone(&self.wire);
        let Some(key) = self.site.wires.enter(Endpoint { wire, on_server }) else {
            self.refused = true;
            return;
        };
        let path = self.site.route.path.trim_end_matches('/');
        let event = format!("event: endpoint\ndata: {path}/messages?{key}\n\n");
        self.key = Some(key);
        out.raw(&event.into());
    }
}

impl Judge for Speaking {
    fn event(&mut self, event: &Event, out: &mut Batch) {
        if self.key.is_none() && event.name() == Some(b"endpoint") {
            let named = event.data().unwrap_or_default();
            return self.announce(&named, out);
        }
        let message = message_in(event);
        let observing = self.observes();
        let fate = message
            .map(|message| self.wire.lock().filter.server_message(now(), Origin::Shared, &message));
        let as_is = observing || !matches!(fate, Some(Disposition::Consumed));
        if as_is {
            self.collect(out);
            out.raw(&event.raw);
        }
    }

    fn passing(&mut self, piece: &Piece, out: &mut Batch) -> bool {
        let (text, raw) = (text_of(piece), piece.raw.clone());
        self.collect(out);
        let fate = self.wire.lock().filter.server_passing(now(), Origin::Shared, raw, text);
        passed_on(self, self.observes(), &fate, piece, out);
        matches!(fate, Disposition::NotAMessage(_))
    }

    fn piece(&mut self, piece: &Piece, out: &mut Batch) {
        let (text, raw) = (text_of(piece), piece.raw.clone());
        let fate = self.wire.lock().filter.server_piece(now(), Origin::Shared, raw, text);
        passed_on(self, self.observes(), &fate, piece, out);
    }

    fn passed(&mut self, out: &mut Batch) {
        self.wire.lock().filter.server_passed(now(), Origin::Shared, None);
        self.collect(out);
    }

    fn collect(&mut self, out: &mut Batch) {
        let mut state = self.wire.lock();
        let observing = state.observes();
        let at = now();
        while let Some(transmit) = state.filter.poll_transmit(at, WIRE) {
            if !observing {
                out.transmit(&transmit);
            }
        }
        state.filter.apply(at, Input::Written(WIRE));
        while let Some(record) = state.filter.poll_record() {
            state.log.note(&record);
        }
        while let Some(payload) = state.filter.poll_to_server() {
            if let Some(tell) = &state.tell {
                tell(payload);
            }
        }
        state.count();
    }

    fn slow(&mut self, slow: bool) {
        self.wire.lock().filter.apply(now(), Input::Slow(slow));
    }

    fn timeout(&self) -> Option<std::time::Instant> {
        self.wire.lock().filter.poll_timeout()
    }

    fn listen(&mut self, cx: &mut Context<'_>) {
        self.wire.reader.register(cx);
    }

    fn look_around(&mut self, _: &mut Batch) {}

    fn ended(&mut self, error: Option<&UpstreamError>, out: &mut Batch) {
        let why = match error {
            None => "the server closed the stream".to_owned(),
            Some(error) => crate::observe::error_chain::error_chain(error),
        };
        if self.key.is_some() {
            self.wire.lock().filter.apply(now(), Input::Gone(why.into()));
        }
        self.collect(out);
    }

    fn may_comment(&self) -> bool {
        self.key.is_some()
    }

    fn goes_on(&self) -> bool {
        !self.refused
    }
}

impl Drop for Speaking {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.site.wires.lock().remove(key);
        }
        let mut state = self.wire.lock();
        state.filter.apply(now(), Input::Closes(WIRE, false));
        while let Some(record) = state.filter.poll_record() {
            if !matches!(record, FilterEvent::Heartbeat(_)) {
                state.log.note(&record);
            }
        }
    }
}

impl Proxy {
    /// A client opens its stream.
    pub(crate) async fn open_wire(
        self: &Arc<Self>,
        site: &Arc<Site>,
        parts: Parts,
        body: Posted,
        ours: bool,
        outlet: Outlet,
    ) -> Response<Body> {
        let Some(target) = &site.sse else {
            return self.bridge_wire(site, &parts, ours, outlet);
        };
        if parts.method != Method::GET {
            let body = RequestBody::from(body);
            return self.forward(site, target, parts, body, ours).await;
        }
        let (head, body, counted) = match self.open_events(site, target, parts, ours).await {
            Ok(opened) => opened,
            Err(response) => return *response,
        };
        let mut filter = Filter::new(Arc::clone(&site.policy));
        filter.open_stream(WIRE, StreamKind::Shared, site.pacing());
        let mut filter = FilterGuard::new(filter, Arc::clone(&site.policy), WIRE);
        filter.observed_by(site.audience.emitter(None, Scope::Whole, &site.policy));
        let following = Following::new(site);
        let calls = Arc::clone(&site.calls);
        let log = site.audience.log();
        let state = Mutex::new(State { filter, following, log, calls, open: None, tell: None });
        let speaking = Speaking {
            site: Arc::clone(site),
            wire: Arc::new(Wire { state, reader: Mailbox::default() }),
            key: None,
            refused: false,
        };
        let stream = EventStream::new(speaking, body, Silence::of(&site.route), outlet);
        let body = self.listened(stream, counted);
        self.answered(site, head, true, body)
    }

    /// A client posts for its stream: what it says is known before the server can answer it.
    pub(crate) async fn post_to_wire(
        self: &Arc<Self>,
        site: &Arc<Site>,
        mut parts: Parts,
        body: Posted,
        ours: bool,
    ) -> Response<Body> {
        if site.sse.is_none() {
            return self.bridge_to_wire(site, parts, body).await;
        }
        let endpoint = parts.uri.query().and_then(|query| site.wires.lock().get(query).cloned());
        let (Some(target), Some(endpoint)) = (&site.sse, endpoint) else {
            return text(StatusCode::NOT_FOUND, "there is no such stream; open one with a GET");
        };
        let read = match request_body::read(
            body,
            &parts.headers,
            site.route.max_request_bytes,
            INSPECT_MAX,
        )
        .await
        {
            Ok(read) => read,
            Err(unread) => return refuse(site, &unread, parts.version),
        };
        let policy = endpoint.wire.policy();
        let (message, body) = request_body::for_server(read, &policy, &mut parts.headers);
        if site.has_left() && asks(message.as_ref()) {
            return text(
                StatusCode::NOT_FOUND,
                "this route has another server now; open a new stream",
            );
        }
        let method = message.as_ref().and_then(Message::method);
        let trace = trace_of(&parts.headers);
        // Nothing of ours may come before it.
        let begins = method.as_deref() == Some(mcp::INITIALIZED);
        if !begins {
            endpoint.wire.told(message.as_ref(), trace.as_ref());
        }
        let response = self.send_on(site, target, &endpoint, parts, body, ours).await;
        if begins && response.status().is_success() {
            endpoint.wire.told(message.as_ref(), trace.as_ref());
        }
        if !response.status().is_success()
            && let Some(message) = &message
        {
            endpoint.wire.lock().filter.apply(now(), Input::Refused(message.clone()));
            endpoint.wire.reader.wake();
        }
        response
    }

    async fn send_on(
        &self,
        site: &Arc<Site>,
        target: &Target,
        endpoint: &Endpoint,
        parts: Parts,
        body: RequestBody,
        ours: bool,
    ) -> Response<Body> {
        let mut request = self.onward(site, target, parts, body, ours);
        *request.uri_mut() = target.at(endpoint.on_server.clone());
        let open = site.calls.open();
        if let Some(tell) = self.teller(site, &target.client, &request) {
            endpoint.wire.lock().tell = Some(tell);
        }
        match target.client.send(request).await {
            Ok(response) => self.piped(site, response, Some(open)),
            Err(error) => unreachable(site, &error, None),
        }
    }
}

impl Wire {
    /// By what the next request goes.
    fn policy(&self) -> Arc<Policy> {
        let mut state = self.lock();
        state.settle();
        Arc::clone(state.filter.policy())
    }

    fn told(&self, message: Option<&Message>, trace: Option<&TraceContext>) {
        let mut state = self.lock();
        state.settle();
        state.filter.try_with(|filter| filter.traced(WIRE, trace.cloned()));
        match message {
            Some(message) if message.kind() != Kind::Noise => {
                state.filter.client_message(now(), WIRE, message);
            }
            Some(_) => {}
            None => {
                state.filter.apply(now(), Input::KnowsNotAll);
            }
        }
        state.count();
        drop(state);
        self.reader.wake();
    }
}
