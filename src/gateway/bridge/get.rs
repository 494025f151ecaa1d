//! GET and DELETE of a session that is ours.

use crate::gateway::bridge::frame;
use crate::gateway::bridge::responses::{events_head, no_method, refusal};
use crate::transport::mcp_http::header_names::{LAST_EVENT_ID, SESSION_ID};
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use super::Bridge;
use super::session::{BridgeSession, ENDED};
use crate::gateway::bridge::replay_buffer::ReplayBuffer;
use crate::gateway::bridge::response_body::{ResponseBody, ResponseForm};
use crate::protocol::sse;
use crate::transport::http::body::Body;
use crate::transport::http::write_state::WriteState;

impl Bridge {
    /// A client listens, or comes back for what it has missed.
    pub(crate) fn get(&self, parts: &Parts, outlet: WriteState) -> Response<Body> {
        if !parts.headers.contains_key(SESSION_ID) {
            return no_method();
        }
        let session = match self.session_named(&parts.headers) {
            Ok(session) => session,
            Err(refusal) => return *refusal,
        };
        let (store, from) = wanted(&session, &parts.headers);
        if from.is_some_and(|from| !store.has_more(from)) {
            // There is nothing to come back for: a stream would have the client come back again.
            return no_method();
        }
        let Some(permit) = self.state.permit() else {
            let why = "too many streams are open on this route";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, why, None);
        };
        session.touch();
        let greeting = Bytes::from_static(sse::COMMENT);
        let means = (self.state.route.keep_alive, outlet, permit);
        let reader =
            ResponseBody::new(store.attach(from), &session, ResponseForm::Events, &greeting, means);
        self.route_response(StatusCode::OK, events_head(), Body::Stream(Box::new(reader)))
    }

    /// A client ends its session.
    pub(crate) fn delete(&self, parts: &Parts) -> Response<Body> {
        match self.session_named(&parts.headers) {
            Ok(session) => {
                self.sessions.forget(&session.id);
                session.end(ENDED);
                self.route_response(StatusCode::OK, HeaderMap::new(), Body::empty())
            }
            Err(refusal) => *refusal,
        }
    }
}

/// The stream that a GET asks for, and behind which of its messages.
fn wanted(session: &BridgeSession, headers: &HeaderMap) -> (Arc<ReplayBuffer>, Option<u64>) {
    let id = headers.get(LAST_EVENT_ID).and_then(|id| frame::read_id(id.as_bytes()));
    let found = id.and_then(|(stream, number)| Some((session.find(stream)?, Some(number))));
    found.unwrap_or_else(|| (Arc::clone(&session.home), None))
}
