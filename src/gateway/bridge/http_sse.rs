//! HTTP+SSE of 2024-11-05 in front of a server with another transport: a session is a single stream for all messages,
//! and an endpoint to which the client posts (rules L).

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};

use super::Bridge;
use super::begin::SessionRequest;
use super::post::broken_off;
use super::posted_message::{PostedMessage, read};
use super::session::{SessionCommand, SessionKind};
use super::upload::Upload;
use crate::gateway::bridge::response_body::{BridgeBody, ResponseForm};
use crate::gateway::bridge::responses::{no_events, refusal};
use crate::gateway::fleet::session::FleetSession;
use crate::gateway::refusals::{events_head, refuse_unread};
use crate::transport::http::body::Body;
use crate::transport::http::forwarded::public_path;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::request_body::{PostedBody, asks};
use crate::transport::mcp_http::request_head::takes_events;

/// The query parameter of a stream's endpoint that contains the session's id.
const KEY: &str = "sessionId";

/// Returns the session's id in the query of an endpoint.
pub(crate) fn key_in(query: &str) -> Option<&[u8]> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == KEY).map(|(_, id)| id.as_bytes())
}

impl Bridge {
    /// Opens the stream of a client, which is its session.
    pub(crate) fn open_stream(&self, parts: &Parts, write_state: WriteState) -> Response<Body> {
        if parts.method != Method::GET {
            let why = "clients of HTTP+SSE open their stream with a GET";
            return refusal(StatusCode::METHOD_NOT_ALLOWED, why, None);
        }
        if !takes_events(&parts.headers) {
            return no_events();
        }
        let permit = match self.stream_permit(parts, None) {
            Ok(permit) => permit,
            Err(refusal) => return *refusal,
        };
        let session = match self.begin_session(&SessionRequest {
            kind: SessionKind::HttpSse,
            id: None,
            principal: None,
            owner: self.owner_of(&parts.headers),
            certificate: parts.extensions.get().cloned(),
            named: parts.extensions.get(),
            client: parts.extensions.get(),
        }) {
            Ok(session) => session,
            Err(refusal) => return *refusal,
        };
        let path = public_path(&self.state.route, &parts.extensions);
        let query = format!("{KEY}={}", session.id);
        let query = match FleetSession::of(parts) {
            Some(fleet) => fleet.endpoint_query(&query),
            None => query,
        };
        let first = format!("event: endpoint\ndata: {path}/messages?{query}\n\n");
        let delivery = (self.state.route.keep_alive, write_state, permit);
        let subscription = session.session_buffer.attach(None);
        let reader = BridgeBody::new(
            subscription,
            &session,
            ResponseForm::Plain,
            &Bytes::from(first),
            delivery,
        );
        let body = Body::Stream(Box::new(reader.ends_session()));
        self.route_response(StatusCode::OK, events_head(), body)
    }

    /// Answers a POST of a client whose answers go to its HTTP+SSE stream.
    pub(crate) async fn post_to_stream(&self, parts: Parts, body: PostedBody) -> Response<Body> {
        let id = key_in(parts.uri.query().unwrap_or_default());
        let session = id.and_then(|id| self.sessions.find(id, SessionKind::HttpSse));
        if session.is_none()
            && let Some(next) = self.sessions.heir()
        {
            // The stream was handed over to a new server while this request was on its way.
            return next.post(parts, body).await;
        }
        let Some(session) = session.filter(|session| self.may_speak(session, &parts)) else {
            let why = "there is no such stream; open one with a GET";
            let response = refusal(StatusCode::NOT_FOUND, why, None);
            return refuse_unread(&self.state, &parts, body, response);
        };
        let posted = match read(&self.state, &parts, body).await {
            Ok(posted) => posted,
            Err(refusal) => return *refusal,
        };
        // A stream on which the client has sent nothing yet continues with the new server.
        let next = || self.sessions.heir();
        let goes_on = || !session.was_heard() && next().is_some_and(|next| next.adopts(&session));
        if self.state.shared.is_retired() && asks(posted.message()) && !goes_on() {
            let why = "this route has another server now; open a new stream with a GET";
            return refusal(StatusCode::NOT_FOUND, why, None);
        }
        let headers = self.headers_for_server(&parts);
        let complete = match posted {
            PostedMessage::Whole(message) => {
                // Locked only for a moment, to wait for a message that arrives in pieces: its sender has this lock
                // until the end.
                let _order = session.speaking.lock().await;
                session.send(SessionCommand::Tell(message, headers)).await
            }
            PostedMessage::Large(body) => {
                match session.send_in_pieces(body, &session.session_buffer, headers).await {
                    Upload::BrokenOff => return broken_off(),
                    complete => complete == Upload::Complete,
                }
            }
        };
        if !complete {
            return refusal(StatusCode::NOT_FOUND, "the session has ended", None);
        }
        let accepted = Body::from(Bytes::from_static(b"Accepted"));
        self.route_response(StatusCode::ACCEPTED, HeaderMap::new(), accepted)
    }
}
