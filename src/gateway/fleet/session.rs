//! What the fleet knows about one request: the id of its session, sealed and as the server knows it.

use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Response, Uri};

use super::seal::{IdBinding, IdKind, Opened, Owner, Seal};
use crate::config::routes::Route;
use crate::transport::http::body::Body;
use crate::transport::http::client_name::ClientName;
use crate::transport::http::endpoints::EndpointKind;
use crate::transport::mcp_http::header_names::SESSION_ID;
use crate::transport::random::random_bytes;

/// The query parameter of an HTTP+SSE endpoint that contains the sealed query.
const KEY: &str = "sessionId";

/// The keys with which this replica seals ids, and its own identity.
pub(super) struct FleetSeal {
    /// The address and boot number of this process.
    pub(super) me: Owner,
    pub(super) seal: Seal,
    /// Whether new ids are sealed.
    pub(super) seals: bool,
}

/// What the fleet knows about a request. Stored in the extensions of the request.
#[derive(Clone)]
pub(crate) struct FleetSession {
    seal: Arc<FleetSeal>,
    route: Arc<Route>,
    principal: Option<ClientName>,
    /// The session that the request names, as the client has it and as the server has it.
    named: Option<(HeaderValue, HeaderValue)>,
    /// Whether the session's owner has ended, and this replica serves the session without knowing all of its state.
    pub(super) is_taken_over: bool,
}

impl FleetSession {
    pub(super) fn new(
        seal: &Arc<FleetSeal>,
        route: &Arc<Route>,
        principal: Option<ClientName>,
    ) -> Self {
        let (seal, route) = (Arc::clone(seal), Arc::clone(route));
        Self { seal, route, principal, named: None, is_taken_over: false }
    }

    /// Returns the fleet's data of a request, if there is a fleet.
    pub(crate) fn of(parts: &Parts) -> Option<&Self> {
        parts.extensions.get()
    }

    /// Notes the session of a request as the client has it, and as the server has it.
    pub(super) fn note_name(&mut self, kind: IdKind, parts: &Parts, id: &[u8]) {
        let text = parts.headers.get(SESSION_ID).filter(|_| kind == IdKind::Session);
        self.named = text.cloned().zip(HeaderValue::from_bytes(id).ok());
    }

    fn bound_to(&self, kind: IdKind) -> IdBinding<'_> {
        let principal = self.principal.as_ref().map_or("", ClientName::as_str);
        IdBinding { kind, route: &self.route.path, principal }
    }

    /// Returns the session id that a request names, opened.
    pub(super) fn opened(&self, part: &EndpointKind, parts: &Parts) -> (IdKind, Opened) {
        let (kind, text) = match part {
            EndpointKind::Endpoint | EndpointKind::Sse => {
                (IdKind::Session, parts.headers.get(SESSION_ID).map(HeaderValue::as_bytes))
            }
            EndpointKind::Messages(_) => {
                (IdKind::Endpoint, sealed_query(parts.uri.query().unwrap_or_default()))
            }
            EndpointKind::WellKnown(_) => (IdKind::Session, None),
        };
        let opened = text.map(|text| self.seal.seal.open(text, &self.bound_to(kind)));
        (kind, opened.unwrap_or(Opened::Plain))
    }

    fn seal(&self, kind: IdKind, id: &[u8]) -> Option<String> {
        if !self.seal.seals {
            return None;
        }
        self.seal.seal.seal(self.seal.me, id, random_bytes()?, &self.bound_to(kind))
    }

    /// Returns the query of an HTTP+SSE endpoint as a client of this replica gets it.
    pub(crate) fn endpoint_query(&self, query: &str) -> String {
        match self.seal(IdKind::Endpoint, query.as_bytes()) {
            Some(sealed) => format!("{KEY}={sealed}"),
            None => query.to_owned(),
        }
    }

    /// Whether another replica owned the session, so that this replica does not know all of its state.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// Seals the session id that a response names. If the client already has an id for the session, it keeps that id.
    pub(crate) fn seal_response(&self, response: &mut Response<Body>) {
        let Some(id) = response.headers().get(SESSION_ID) else { return };
        let known = self.named.as_ref().filter(|(_, known)| known == id);
        let sealed = match known {
            Some((text, _)) => Some(text.clone()),
            None => self
                .seal(IdKind::Session, id.as_bytes())
                .and_then(|sealed| HeaderValue::try_from(sealed).ok()),
        };
        if let Some(sealed) = sealed {
            response.headers_mut().insert(SESSION_ID, sealed);
        }
    }
}

/// Returns the sealed part of a query, if the query has one.
fn sealed_query(query: &str) -> Option<&[u8]> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == KEY).map(|(_, text)| text.as_bytes())
}

/// Replaces the session id of a request by the id that the server knows.
pub(super) fn rename(kind: IdKind, parts: &mut Parts, id: &[u8]) {
    match kind {
        IdKind::Session => {
            if let Ok(id) = HeaderValue::from_bytes(id) {
                parts.headers.insert(SESSION_ID, id);
            }
        }
        IdKind::Endpoint => {
            let path = parts.uri.path();
            let target = format!("{path}?{}", String::from_utf8_lossy(id));
            let mut uri = parts.uri.clone().into_parts();
            if let Ok(target) = PathAndQuery::try_from(target) {
                uri.path_and_query = Some(target);
                parts.uri = Uri::from_parts(uri).unwrap_or_else(|_| parts.uri.clone());
            }
        }
    }
}
