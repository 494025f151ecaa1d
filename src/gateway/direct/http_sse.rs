//! HTTP+SSE of 2024-11-05: one stream for all server messages, and an endpoint for POSTs, which the server names in its
//! first event. The client sees both at paths below the route's path.

use std::sync::{Arc, Mutex};
use std::task::Context;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use smallvec::SmallVec;

use super::mailbox::Mailbox;
use super::sse_streams::{DirectSseStream, SsePostTarget, SseStreamState};
use super::{Direct, stream_body};
use crate::gateway::direct::control::{ControlSender, ControlledServer};
use crate::gateway::direct::event_stream::{EventHandler, EventStream, Silence};
use crate::gateway::fleet::session::FleetSession;
use crate::gateway::refusals::{read_or_refuse, refuse_unread, text, unreachable};
use crate::gateway::route_state::RouteWatch;
use crate::observe::cancellations::CancelInbox;
use crate::observe::events::Scope;
use crate::progress::input::Input;
use crate::progress::{Disposition, Filter, FilterEvent, Origin, StreamKind, StreamPacing};
use crate::protocol::sse::{COMMENT, Piece, SseEvent};
use crate::relay::filter_guard::FilterGuard;
use crate::relay::{SOLE_STREAM, origin_of};
use crate::transport::clock::now;
use crate::transport::http::body::{Batch, Body};
use crate::transport::http::client::UpstreamError;
use crate::transport::http::forwarded::public_path;
use crate::transport::http::forwarder::BodyOrigin;
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::event_ids::EventIds;
use crate::transport::mcp_http::event_message::{is_stray, message_in};
use crate::transport::mcp_http::request_body;
use crate::transport::mcp_http::request_body::{PostedBody, asks, cancels_apart};
use crate::transport::mcp_http::sse_endpoint::same_origin;
use crate::transport::mcp_http::target::Target;

/// Reads the server's side of an HTTP+SSE stream.
struct SseServerHandler {
    direct: Arc<Direct>,
    stream: Arc<DirectSseStream>,
    /// The inbox for operators' cancellations of calls on the stream.
    cancellations: Option<Arc<CancelInbox>>,
    /// The path of the route as the client reaches it.
    public_path: String,
    /// The key with which POSTs find the stream, once the server has named its endpoint.
    key: Option<String>,
    /// Seals the endpoint, in a fleet.
    fleet: Option<FleetSession>,
    refused: bool,
    large_name: LargeEventName,
}

impl SseServerHandler {
    fn announce(&mut self, named: &[u8], out: &mut Batch) {
        let base = self.direct.state.sse.as_ref().and_then(|target| target.url.as_ref());
        let endpoint = base.and_then(|base| same_origin(base, named));
        let Some(on_server) = endpoint else {
            // Log only the origin: the path and the query may contain a secret.
            let named = std::str::from_utf8(named).ok().and_then(|named| base?.join(named).ok());
            tracing::error!(
                route = self.direct.state.route.path,
                origin = named.map(|named| named.origin().ascii_serialization()),
                "the server names an endpoint of another origin; its stream is closed"
            );
            return self.refuse(Some(out));
        };
        let target = SsePostTarget { stream: Arc::clone(&self.stream), on_server };
        // A stream keeps its first key, so that a server that names many endpoints adds only one entry to the table.
        let key = match self.key.take() {
            Some(key) => {
                self.direct.sse_streams.lock().insert(key.clone(), target);
                Some(key)
            }
            None => self.direct.sse_streams.enter(target),
        };
        let Some(key) = key else {
            self.refused = true;
            return;
        };
        let path = &self.public_path;
        let sealed = self.fleet.as_ref().map(|fleet| fleet.endpoint_query(&key));
        let query = sealed.as_deref().unwrap_or(&key);
        let event = format!("event: endpoint\ndata: {path}/messages?{query}\n\n");
        self.key = Some(key);
        out.raw(&event.into());
    }

    /// Ends the stream, because its endpoint must not be used. Requests that the client has sent are answered with an
    /// error, if `out` is given.
    fn refuse(&mut self, out: Option<&mut Batch>) {
        self.refused = true;
        self.direct.state.shared.counts.upstream_error("endpoint");
        if let Some(out) = out.filter(|_| self.key.is_some()) {
            let why = "the server names an endpoint of another origin";
            self.stream.lock().filter.apply(now(), Input::CloseServer(why.into()));
            self.collect(out);
        }
    }

    /// Ends the stream if this piece of a large event names the event `endpoint`. The address in such a large event is
    /// not read, so its origin could not be checked.
    fn refuse_large_endpoint(&mut self, piece: &Piece) -> bool {
        if self.large_name.read(&piece.raw) {
            tracing::error!(
                route = self.direct.state.route.path,
                "the server names an endpoint in an event that is too large; its stream is closed"
            );
            self.refuse(None);
        }
        self.refused
    }
}

/// Looks for the name `endpoint` in the lines of an event that comes in pieces.
#[derive(Debug, Default)]
struct LargeEventName {
    /// The beginning of the current line, up to a little more than the length of a line with the name.
    line: Vec<u8>,
}

impl LargeEventName {
    /// Reads the next bytes of the event. Returns whether a line that ends in them is `event: endpoint`.
    fn read(&mut self, bytes: &[u8]) -> bool {
        const LINES: [&[u8]; 2] = [b"event: endpoint", b"event:endpoint"];
        const BOM: &[u8] = b"\xEF\xBB\xBF";
        let mut found = false;
        for byte in bytes {
            if matches!(byte, b'\r' | b'\n') {
                let line = self.line.strip_prefix(BOM).unwrap_or(&self.line);
                found |= LINES.contains(&line);
                self.line.clear();
            } else if self.line.len() <= BOM.len() + LINES[0].len() {
                self.line.push(*byte);
            }
        }
        found
    }
}

impl EventHandler for SseServerHandler {
    fn origin(&self) -> Origin {
        Origin::Shared
    }

    fn with_filter<T>(&mut self, question: impl FnOnce(&mut FilterGuard) -> T) -> T {
        question(&mut self.stream.lock().filter)
    }

    fn observes(&self) -> bool {
        self.stream.lock().observes()
    }

    fn event(&mut self, event: &SseEvent, out: &mut Batch) {
        if event.name() == Some(b"endpoint") {
            let named = event.data().unwrap_or_default();
            return self.announce(&named, out);
        }
        let rename = || self.stream.lock().filter.repairs_event_name(Origin::Shared);
        let message = message_in(event, rename);
        let observing = self.observes();
        let withhold = || self.stream.lock().filter.withhold_noise(now(), Origin::Shared);
        if message.is_none() && !observing && is_stray(event) && withhold() {
            self.collect(out);
            // Clients expect nothing before the endpoint event.
            if self.key.is_some() {
                out.raw(&Bytes::from_static(COMMENT));
                EventIds::default().keep_remaining_fields(event, None, out);
            }
            return;
        }
        let is_taken = message.is_some_and(|message| {
            let mut state = self.stream.lock();
            let SseStreamState { filter, tokens, .. } = &mut *state;
            tokens.mark(now(), filter, Origin::Shared, &message);
            let fate = filter.server_message(now(), Origin::Shared, &message);
            fate != Disposition::NotMine && !fate.refuses_all_of(&message)
        });
        if observing || !is_taken {
            self.collect(out);
            out.raw(&event.raw);
        }
    }

    fn begin_large(&mut self, piece: &Piece, out: &mut Batch) -> bool {
        self.large_name = LargeEventName::default();
        if self.refuse_large_endpoint(piece) {
            return true;
        }
        self.collect(out);
        self.pass_piece(piece, out, FilterGuard::begin_large)
    }

    fn piece(&mut self, piece: &Piece, out: &mut Batch) {
        if !self.refuse_large_endpoint(piece) {
            self.pass_piece(piece, out, FilterGuard::large_piece);
        }
    }

    fn collect(&mut self, out: &mut Batch) {
        let mut state = self.stream.lock();
        let observing = state.observes();
        let at = now();
        while let Some(transmit) = state.filter.poll_transmit(at, SOLE_STREAM) {
            if !observing {
                out.transmit(&transmit);
            }
        }
        state.filter.apply(at, Input::MarkWritten(SOLE_STREAM));
        let mut ended = false;
        while let Some(record) = state.filter.poll_event() {
            ended |= matches!(record, FilterEvent::Call(_));
            state.log.note(&record);
        }
        if ended {
            state.renew_tokens();
        }
        // Messages that the filter itself sends, such as cancellations, belong to no POST of a client.
        while let Some(payload) = state.filter.poll_to_server() {
            if let Some(control) = &state.control {
                control.send(&payload);
            }
        }
        state.count();
    }

    fn timeout(&self) -> Option<std::time::Instant> {
        self.stream.lock().filter.poll_timeout()
    }

    fn listen(&mut self, cx: &mut Context<'_>) {
        self.stream.reader.register(cx);
        if let Some(inbox) = &self.cancellations {
            inbox.register(cx);
        }
    }

    fn drain_mailbox(&mut self, _: &mut Batch) {
        if self.cancellations.as_ref().is_some_and(|inbox| inbox.is_filled()) {
            self.stream.lock().filter.cancel_calls();
        }
    }

    fn ended(&mut self, error: Option<&UpstreamError>, out: &mut Batch) {
        let why = match error {
            None => "the server closed the stream".to_owned(),
            Some(error) => error.for_clients(),
        };
        if self.key.is_some() {
            self.stream.lock().filter.apply(now(), Input::CloseServer(why.into()));
        }
        self.collect(out);
    }

    fn may_comment(&self) -> bool {
        self.key.is_some()
    }

    fn is_open(&self) -> bool {
        !self.refused
    }
}

impl Drop for SseServerHandler {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.direct.sse_streams.lock().remove(key);
        }
        let mut state = self.stream.lock();
        state.filter.apply(now(), Input::CloseStream(SOLE_STREAM, false));
        while let Some(record) = state.filter.poll_event() {
            if !matches!(record, FilterEvent::Heartbeat(_)) {
                state.log.note(&record);
            }
        }
    }
}

impl Direct {
    /// Opens the stream of a client.
    pub(crate) async fn open_stream(
        self: &Arc<Self>,
        target: &Target,
        parts: Parts,
        body: PostedBody,
        write_state: WriteState,
    ) -> Response<Body> {
        if parts.method != Method::GET {
            let body = RequestBody::from(body);
            return self.forward(target, parts, body).await;
        }
        let fleet = FleetSession::of(&parts).cloned();
        let public_path = public_path(&self.state.route, &parts.extensions);
        // Opened before the filter is made: a server that refuses needs none.
        let (head, body, permit) = match self.open_events(target, parts).await {
            Ok(opened) => opened,
            Err(response) => return *response,
        };
        let mut filter = Filter::new(Arc::clone(&self.state.policy));
        filter.open_stream(SOLE_STREAM, StreamKind::Shared, StreamPacing::ByCall);
        let mut filter = FilterGuard::new(filter, Arc::clone(&self.state.policy), SOLE_STREAM);
        filter.set_emitter(self.state.shared.observers.emitter(
            None,
            Scope::Whole,
            &self.state.policy,
        ));
        let cancellations = filter.cancellations().cloned();
        let watch = RouteWatch::new(&self.state);
        let calls = Arc::clone(&self.state.shared.calls);
        let log = self.state.shared.observers.log();
        let tokens = self.sessions.tokens_of_stream();
        let (open, control) = (None, None);
        let state = Mutex::new(SseStreamState { filter, watch, log, calls, tokens, open, control });
        let speaking = SseServerHandler {
            direct: Arc::clone(self),
            stream: Arc::new(DirectSseStream { state, reader: Mailbox::default() }),
            cancellations,
            public_path,
            key: None,
            fleet,
            refused: false,
            large_name: LargeEventName::default(),
        };
        let stream = EventStream::new(speaking, body, Silence::of(&self.state.route), write_state);
        let body = stream_body::of_listener(stream, permit);
        self.state.forwarder.response(head, BodyOrigin::Milepost, body)
    }

    /// Forwards a POST of a client whose answers go to its HTTP+SSE stream, which is told of the message first.
    pub(crate) async fn post_to_stream(
        self: &Arc<Self>,
        target: &Target,
        mut parts: Parts,
        body: PostedBody,
    ) -> Response<Body> {
        let endpoint =
            parts.uri.query().and_then(|query| self.sse_streams.lock().get(query).cloned());
        let Some(endpoint) = endpoint else {
            let why = "there is no such stream; open one with a GET";
            return refuse_unread(&self.state, &parts, body, text(StatusCode::NOT_FOUND, why));
        };
        let read = match read_or_refuse(&self.state, body, &parts).await {
            Ok(read) => read,
            Err(refusal) => return *refusal,
        };
        let policy = endpoint.stream.policy();
        let (message, body) = request_body::for_server(read, &policy, &mut parts.headers);
        // The stream of a retired route stays open for its open calls, but accepts no new calls.
        if self.state.shared.is_retired() && asks(message.as_ref()) {
            return text(
                StatusCode::NOT_FOUND,
                "this route has another server now; open a new stream",
            );
        }
        let origin = origin_of(&parts);
        // A request may be answered on the stream before its POST has a response, so it is noted before it is sent.
        // Other messages are noted only after the server has accepted them.
        let asks = asks(message.as_ref());
        let (asked, said) = match &message {
            None => (SmallVec::new(), Vec::new()),
            Some(message) if asks => cancels_apart(message),
            Some(message) => (SmallVec::new(), vec![message.clone()]),
        };
        if message.is_none() {
            endpoint.stream.receive_one_way(None, &origin);
        }
        for message in &asked {
            endpoint.stream.receive_one_way(Some(message), &origin);
        }
        let response = self.send_on(target, &endpoint, parts, body).await;
        for message in said.iter().filter(|_| response.status().is_success()) {
            endpoint.stream.receive_one_way(Some(message), &origin);
        }
        if asks
            && !response.status().is_success()
            && let Some(message) = &message
        {
            endpoint.stream.lock().filter.apply(now(), Input::Refuse(message.clone()));
            endpoint.stream.reader.wake();
        }
        response
    }

    async fn send_on(
        &self,
        target: &Target,
        endpoint: &SsePostTarget,
        parts: Parts,
        body: RequestBody,
    ) -> Response<Body> {
        let address = (&target.host, target.at(endpoint.on_server.clone()));
        let open = self.state.shared.calls.open();
        let observers = Some(&*self.state.shared.observers);
        let request = if ControlSender::is_needed(&self.state.policy, observers) {
            let request = self.state.forwarder.copied_request(address, &parts, body);
            let server: ControlledServer = |state| state.sse.as_ref();
            let control = ControlSender::new(&self.state, (server, request.uri()), parts);
            endpoint.stream.lock().control = Some(control);
            request
        } else {
            self.state.forwarder.request(address, parts, body)
        };
        match target.client.send(request).await {
            Ok(response) => self.state.forwarder.piped(response, Some(open)),
            Err(error) => unreachable(&self.state, &error, None),
        }
    }
}
