//! The GET stream that Milepost holds for a session whose client opens none (`own_get = true`): some servers send
//! progress only on that stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::poll_fn;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::session::{Session, SessionBeginning};
use super::{Direct, stream_body};
use crate::gateway::client_limits::LimitedClient;
use crate::gateway::direct::claim::ClaimRequest;
use crate::gateway::direct::event_stream::{EventStream, Silence};
use crate::gateway::direct::listen_stream::Listening;
use crate::gateway::route_state::StreamPermit;
use crate::transport::http::body::{Body, BodyProducer};
use crate::transport::http::client::UpstreamError;
use crate::transport::http::forwarder::BodyOrigin;
use crate::transport::http::inflate::PlainBody;
use crate::transport::http::request_body::RequestBody;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::mcp_http::request_head::RequestHead;
use crate::transport::mcp_http::response_body::{events_coding, take_events};
use crate::transport::tasks;

/// The wait before Milepost opens the stream, because a client that opens its own does so within this time.
const HOLD_AFTER: Duration = Duration::from_secs(2);

/// Limit of the bytes of messages kept for a client that has no open stream to receive them. Beyond the limit the
/// oldest message is dropped.
const QUEUE_BYTES_MAX: usize = 256 << 10;

/// The limit as text, for operators.
const QUEUE_LIMIT: &str = "256 KiB for a session whose client has no GET stream open";

type HeldEventStream = EventStream<Listening, PlainBody>;

/// Why a stream is no longer held.
enum HeldEnd {
    /// The stream or its session has ended, or the client has claimed the stream.
    Over,
    /// The client did not use the session for too long, so the stream ends and its place is free for others.
    Unused,
}

/// A held stream on its way to its client, with the messages kept for it.
struct Handover {
    stream: HeldEventStream,
    queue: VecDeque<Bytes>,
    /// Whether the last bytes may be a part of an event whose rest is still to come.
    midway: bool,
}

/// Returns the handler of a stream on which the client with these headers listens.
pub(crate) fn listening(direct: &Direct, request_head: &RequestHead) -> Listening {
    let session = match request_head.session_id() {
        Some(id) => {
            direct.sessions.find_or_begin(id, &direct.state.policy, SessionBeginning::Missed, None)
        }
        // Without a session, no request can be known here.
        None => {
            let observers = &direct.state.shared.observers;
            let scope = direct.sessions.scope(None, None);
            let (policy, beginning) = (&direct.state.policy, SessionBeginning::Missed);
            Arc::new(Session::new(policy, beginning, observers, None, scope))
        }
    };
    let last = request_head.last_event_id();
    let listening = Listening::new(session.listen(last), &direct.state.policy);
    if last.is_some() { listening.resumed() } else { listening }
}

impl Direct {
    /// Notes that the session of `headers` has begun. If its client does not listen soon, Milepost
    /// does.
    pub(crate) fn hold_get(
        self: &Arc<Self>,
        caller: u64,
        headers: HeaderMap,
        client: Option<LimitedClient>,
    ) {
        let session = headers.get(SESSION_ID).and_then(|id| self.sessions.find(id.as_bytes()));
        let Some(session) = session else { return };
        let direct = Arc::clone(self);
        // A task, because no request of the client drives this stream.
        tasks::spawn(async move {
            sleep(HOLD_AFTER).await;
            if !session.is_listening() {
                let (claim, claims) = mpsc::channel(1);
                if session.hold(caller, claim) {
                    match direct.keep_get(&session, headers, (claims, client)).await {
                        HeldEnd::Over => session.release(),
                        HeldEnd::Unused => session.let_go(),
                    }
                }
            }
        });
    }

    async fn keep_get(
        &self,
        session: &Arc<Session>,
        headers: HeaderMap,
        (mut claims, client): (mpsc::Receiver<ClaimRequest>, Option<LimitedClient>),
    ) -> HeldEnd {
        let Some(target) = &self.state.endpoint else { return HeldEnd::Over };
        let mut get = Request::new(());
        *get.method_mut() = Method::GET;
        *get.headers_mut() = headers;
        // These headers describe the body of the POST; the GET has no body.
        get.headers_mut().remove(header::CONTENT_TYPE);
        get.headers_mut().remove(header::CONTENT_LENGTH);
        get.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let (parts, ()) = get.into_parts();
        let request_head = RequestHead::of(self.state.caller(&parts), &parts);
        let request =
            self.state.forwarder.request(target.address(None), parts, RequestBody::empty());
        let permit = match self.state.permit(client.as_ref()) {
            Ok(permit) => permit,
            Err(why) => {
                tracing::warn!(route = self.state.route.path, %why, "no stream is held");
                return HeldEnd::Over;
            }
        };
        let within = self.state.route.own_request_timeout;
        let sent = timeout(within, target.client.send(request)).await;
        let response = match sent.unwrap_or(Err(UpstreamError::Idle(within))) {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(
                    error = crate::observe::error_chain::error_chain(&error),
                    "the listening stream to the server could not be opened"
                );
                return HeldEnd::Over;
            }
        };
        let coding = events_coding(response.headers(), self.state.policy.observes());
        let Some(coding) = coding.filter(|_| response.status().is_success()) else {
            return HeldEnd::Over;
        };
        let (mut head, body) = response.into_parts();
        let body = take_events(&mut head, body, coding);
        head.status = StatusCode::OK;
        let mut quiet = Silence::of(&self.state.route);
        // No client reads the stream yet, so comments would only fill the queue.
        quiet.keep_alive = None;
        let stream =
            EventStream::new(listening(self, &request_head), body, quiet, WriteState::default());
        let mut held = Handover { stream, queue: VecDeque::new(), midway: false };
        let mut ending = std::pin::pin!(self.state.shared.shutdown.wait());
        let mut over = std::pin::pin!(self.state.shared.over.wait());
        let mut unused = std::pin::pin!(session.unused(self.state.route.session_idle_timeout));
        loop {
            tokio::select! {
                event = poll_fn(|cx| held.stream.poll(cx)) => match event {
                    Some(Ok(event)) => held.keep(session, event),
                    Some(Err(_)) | None => return HeldEnd::Over,
                },
                claim = claims.recv() => {
                    if let Some(claim) = claim {
                        let ClaimRequest { write_state, reply } = claim;
                        held.stream.set_client(write_state, Silence::of(&self.state.route));
                        let body = stream_behind(held.queue, held.stream, permit);
                        // Ignore the error: the client has disconnected meanwhile, and the stream then ends with the
                        // body.
                        let _ = reply.send((head, body));
                    }
                    return HeldEnd::Over;
                }
                () = &mut ending => return HeldEnd::Over,
                () = &mut over => return HeldEnd::Over,
                () = &mut unused => return HeldEnd::Unused,
            }
            // The session may have been forgotten meanwhile: then no client can come for the stream.
            if request_head.session_id().is_none_or(|id| self.sessions.find(id).is_none()) {
                return HeldEnd::Over;
            }
        }
    }

    /// Gives the client the stream that is held for its session, if there is one.
    pub(crate) async fn held_get(
        &self,
        request_head: &RequestHead,
        write_state: &WriteState,
    ) -> Option<Response<Body>> {
        if !self.state.route.own_get || request_head.last_event_id().is_some() {
            return None;
        }
        let claim = self.sessions.find(request_head.session_id()?)?.claim(request_head.caller)?;
        let (reply, receiver) = oneshot::channel();
        claim.send(ClaimRequest { write_state: write_state.clone(), reply }).await.ok()?;
        let (head, body) = receiver.await.ok()?;
        Some(self.state.forwarder.response(head, BodyOrigin::Milepost, body))
    }
}

fn stream_behind(queue: VecDeque<Bytes>, stream: HeldEventStream, permit: StreamPermit) -> Body {
    match stream_body::of_listener(stream, permit) {
        Body::Stream(rest) => Body::Stream(Box::new(QueueThenStream { queue, rest })),
        other => other,
    }
}

impl Handover {
    /// Writes a message of the session to an open response, or keeps it. A message in pieces is always kept, because
    /// another message could come between its pieces on another stream.
    fn keep(&mut self, session: &Session, event: Bytes) {
        // Checked before and after: a piece may begin or end within an event.
        let midway = std::mem::replace(&mut self.midway, !self.stream.at_boundary());
        if !midway && !self.midway && session.offer(self.stream.handler.stream(), &event) {
            return;
        }
        self.queue.push_back(event);
        let mut bytes: usize = self.queue.iter().map(Bytes::len).sum();
        while bytes > QUEUE_BYTES_MAX
            && let Some(oldest) = self.queue.pop_front()
        {
            bytes -= oldest.len();
            session.count_dropped(QUEUE_LIMIT);
        }
    }
}

/// A body with the kept messages, followed by the stream itself.
struct QueueThenStream {
    queue: VecDeque<Bytes>,
    rest: Box<dyn BodyProducer>,
}

impl BodyProducer for QueueThenStream {
    fn poll(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Bytes, UpstreamError>>> {
        match self.queue.pop_front() {
            Some(event) => std::task::Poll::Ready(Some(Ok(event))),
            None => self.rest.poll(cx),
        }
    }
}
