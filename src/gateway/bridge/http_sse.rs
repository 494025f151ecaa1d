//! HTTP+SSE of 2024-11-05 before a server of another transport: a session is one stream for everything,
//! and an endpoint to post to (rules L).

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};

use super::launch::Wanted;
use super::post::{Said, broken_off, read};
use super::session::{Command, Whose};
use super::upload::Upload;
use super::{events_head, passed, refusal};
use crate::gateway::bridge::response_body::{Form, Reader};
use crate::gateway::dispatch::Proxy;
use crate::gateway::route_state::Site;
use crate::transport::http::body::Body;
use crate::transport::http::write_state::Outlet;
use crate::transport::mcp_http::request_body::{Posted, asks};

/// What names a session in the endpoint of its stream.
const KEY: &str = "sessionId";

/// What names a session in the query of an endpoint.
pub(crate) fn key_in(query: &str) -> Option<&[u8]> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == KEY).map(|(_, id)| id.as_bytes())
}

impl Proxy {
    /// A client opens its stream, which is its session.
    pub(crate) fn bridge_wire(
        &self,
        site: &Arc<Site>,
        parts: &Parts,
        ours: bool,
        outlet: Outlet,
    ) -> Response<Body> {
        if parts.method != Method::GET {
            let why = "clients of HTTP+SSE open their stream with a GET";
            return refusal(StatusCode::METHOD_NOT_ALLOWED, why, None);
        }
        let Some(counted) = site.count() else {
            let why = "too many streams are open on this route";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, why, None);
        };
        let session = match self.begin_session(site, &Wanted { whose: Whose::Wire, id: None, ours })
        {
            Ok(session) => session,
            Err(refusal) => return *refusal,
        };
        let path = site.route.path.trim_end_matches('/');
        let id = &session.id;
        let first = format!("event: endpoint\ndata: {path}/messages?{KEY}={id}\n\n");
        let means = (site.route.keep_alive, outlet, counted);
        let attached = session.home.attach(None);
        let reader = Reader::new(attached, &session, Form::Plain, &Bytes::from(first), means);
        let body = Body::Stream(Box::new(reader.ends_session()));
        self.said(site, StatusCode::OK, events_head(), body)
    }

    /// A client posts for its stream.
    pub(crate) async fn bridge_to_wire(
        &self,
        site: &Arc<Site>,
        parts: Parts,
        body: Posted,
    ) -> Response<Body> {
        let id = key_in(parts.uri.query().unwrap_or_default());
        let Some(session) = id.and_then(|id| site.bridge.find(id, Whose::Wire)) else {
            let why = "there is no such stream; open one with a GET";
            return refusal(StatusCode::NOT_FOUND, why, None);
        };
        let said = match read(site, &parts, body).await {
            Ok(said) => said,
            Err(refusal) => return *refusal,
        };
        if site.has_left() && asks(said.message()) {
            let why = "this route has another server now; open a new stream with a GET";
            return refusal(StatusCode::NOT_FOUND, why, None);
        }
        let headers = passed(site, parts.headers);
        let heard = match said {
            Said::Whole(message) => {
                let _order = session.speaking.lock().await;
                session.say(Command::Tell(message, headers)).await
            }
            Said::Large(body) => match session.say_in_pieces(body, &session.home, headers).await {
                Upload::BrokenOff => return broken_off(),
                heard => heard == Upload::Said,
            },
        };
        if !heard {
            return refusal(StatusCode::NOT_FOUND, "the session has ended", None);
        }
        let accepted = Body::from(Bytes::from_static(b"Accepted"));
        self.said(site, StatusCode::ACCEPTED, HeaderMap::new(), accepted)
    }
}
