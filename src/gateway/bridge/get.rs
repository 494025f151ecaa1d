//! GET and DELETE of a session of the bridge.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use super::Bridge;
use super::session::{BridgeSession, ENDED};
use crate::gateway::bridge::frame;
use crate::gateway::bridge::replay_buffer::ReplayBuffer;
use crate::gateway::bridge::response_body::{BridgeBody, ResponseForm};
use crate::gateway::bridge::responses::{no_events, no_method};
use crate::gateway::refusals::events_head;
use crate::protocol::sse;
use crate::transport::http::body::Body;
use crate::transport::http::write_state::WriteState;
use crate::transport::mcp_http::header_names::{LAST_EVENT_ID, SESSION_ID};
use crate::transport::mcp_http::request_head::takes_events;

impl Bridge {
    /// Answers a GET, with which a client listens or resumes a stream.
    pub(crate) fn get(&self, parts: &Parts, write_state: WriteState) -> Response<Body> {
        if !parts.headers.contains_key(SESSION_ID) {
            return no_method();
        }
        if !takes_events(&parts.headers) {
            return no_events();
        }
        let session = match self.session_named(parts) {
            Ok(session) => session,
            Err(refusal) => return *refusal,
        };
        let (buffer, from) = requested_stream(&session, &parts.headers);
        if from.is_some_and(|from| !buffer.has_more(from)) {
            // The stream would carry no messages. An empty stream would make the client reconnect again and again,
            // which 405 prevents.
            return no_method();
        }
        // The stream of an open call already has a permit, which it keeps while its client is away.
        let permit = match buffer.permit().map_or_else(|| self.stream_permit(parts, None), Ok) {
            Ok(permit) => permit,
            Err(refusal) => return *refusal,
        };
        session.signals.mark_present();
        let greeting = Bytes::from_static(sse::COMMENT);
        let delivery = (self.state.route.keep_alive, write_state, permit);
        let reader = BridgeBody::new(
            buffer.attach(from),
            &session,
            ResponseForm::Events,
            &greeting,
            delivery,
        );
        self.route_response(StatusCode::OK, events_head(), Body::Stream(Box::new(reader)))
    }

    /// Answers a DELETE, with which a client ends its session.
    pub(crate) fn delete(&self, parts: &Parts) -> Response<Body> {
        match self.session_named(parts) {
            Ok(session) => {
                self.sessions.forget(&session.id);
                session.end(ENDED);
                self.route_response(StatusCode::OK, HeaderMap::new(), Body::empty())
            }
            Err(refusal) => *refusal,
        }
    }
}

/// Returns the stream that a GET asks for, and the message after which it resumes.
fn requested_stream(
    session: &BridgeSession,
    headers: &HeaderMap,
) -> (Arc<ReplayBuffer>, Option<u64>) {
    let id = headers.get(LAST_EVENT_ID).and_then(|id| frame::read_id(id.as_bytes()));
    let found = id.and_then(|(stream, number)| Some((session.find(stream)?, Some(number))));
    found.unwrap_or_else(|| (Arc::clone(&session.session_buffer), None))
}
