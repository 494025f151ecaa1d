//! GET and DELETE of a session that is ours.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use super::session::{ENDED, Session};
use super::{events_head, frame, named, no_method, refusal};
use crate::gateway::bridge::replay_buffer::Store;
use crate::gateway::bridge::response_body::{Form, Reader};
use crate::gateway::dispatch::Proxy;
use crate::gateway::route_state::Site;
use crate::protocol::sse;
use crate::transport::http::body::Body;
use crate::transport::http::write_state::Outlet;
use crate::transport::mcp_http::header_names::SESSION_ID;

impl Proxy {
    /// A client listens, or comes back for what it has missed.
    pub(crate) fn bridge_get(
        &self,
        site: &Arc<Site>,
        parts: &Parts,
        outlet: Outlet,
    ) -> Response<Body> {
        if !parts.headers.contains_key(SESSION_ID) {
            return no_method();
        }
        let session = match named(site, &parts.headers) {
            Ok(session) => session,
            Err(refusal) => return *refusal,
        };
        let (store, from) = wanted(&session, &parts.headers);
        if from.is_some_and(|from| !store.has_more(from)) {
            // There is nothing to come back for: a stream would have the client come back again.
            return no_method();
        }
        let Some(counted) = site.count() else {
            let why = "too many streams are open on this route";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, why, None);
        };
        session.touch();
        let greeting = Bytes::from_static(sse::COMMENT);
        let means = (site.route.keep_alive, outlet, counted);
        let reader = Reader::new(store.attach(from), &session, Form::Events, &greeting, means);
        self.said(site, StatusCode::OK, events_head(), Body::Stream(Box::new(reader)))
    }

    /// A client ends its session.
    pub(crate) fn bridge_delete(&self, site: &Arc<Site>, parts: &Parts) -> Response<Body> {
        match named(site, &parts.headers) {
            Ok(session) => {
                site.bridge.forget(&session.id);
                session.end(ENDED);
                self.said(site, StatusCode::OK, HeaderMap::new(), Body::empty())
            }
            Err(refusal) => *refusal,
        }
    }
}

/// The stream that a GET asks for, and behind which of its messages.
fn wanted(session: &Session, headers: &HeaderMap) -> (Arc<Store>, Option<u64>) {
    let id = headers.get("last-event-id").and_then(|id| frame::read_id(id.as_bytes()));
    let found = id.and_then(|(stream, number)| Some((session.find(stream)?, Some(number))));
    found.unwrap_or_else(|| (Arc::clone(&session.home), None))
}
