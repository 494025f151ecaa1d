//! Hands over streams of HTTP+SSE that exist at a reload before their clients have sent anything. A client opens its
//! stream and then posts its first request. If the route gets another server between these two steps, the stream
//! continues with the new server.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::request::Parts;
use http::{Response, StatusCode};
use tokio::sync::mpsc;

use super::Bridge;
use super::begin::SessionRequest;
use super::client_leg::SessionLeg;
use super::session::{BridgeSession, SessionCommand, SessionHeir, SessionKind};
use super::signals::Broken;
use crate::config::routes::Upstream;
use crate::transport::http::body::Body;
use crate::transport::mcp_http::request_body::PostedBody;

impl SessionLeg {
    /// Hands the session over to the route's current server, if its client has sent nothing yet. Returns false if the
    /// session ends here instead.
    pub(crate) fn hand_over(&mut self) -> bool {
        let session = Arc::clone(&self.session);
        let next = self.sessions.heir();
        let Some(next) = next.filter(|next| !session.was_heard() && next.adopts(&session)) else {
            return false;
        };
        let (_, closed) = mpsc::channel(1);
        let commands = std::mem::replace(&mut self.commands, closed);
        // Taken out first, so that the stream does not end with this relay.
        self.open.clear();
        self.forget_writing();
        if !next.adopt(&session, commands) {
            let why = "the route has another server now, which does not start";
            session.session_buffer.break_off(&Broken { status: StatusCode::BAD_GATEWAY, why });
        }
        true
    }
}

impl Bridge {
    /// Finds the bridge of the same route with its new server, which takes over sessions of this bridge.
    pub(crate) fn find_heir<'a>(&self, mut bridges: impl Iterator<Item = &'a Arc<Self>>) {
        let path = &self.state.route.path;
        if let Some(heir) = bridges.find(|next| next.state.route.path == *path) {
            self.sessions.set_heir(heir);
        }
    }
}

impl SessionHeir for Bridge {
    fn adopts(&self, session: &BridgeSession) -> bool {
        // Only for commands: a server over HTTP may check credentials, and a session without a request has none.
        session.kind == SessionKind::HttpSse
            && matches!(self.state.route.upstream, Upstream::Command(_))
            && !self.state.shared.is_retired()
    }

    fn adopt(
        &self,
        session: &Arc<BridgeSession>,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> bool {
        let certificate = session.certificate();
        let request = SessionRequest {
            kind: session.kind,
            id: None,
            principal: session.principal,
            owner: None,
            certificate: certificate.cloned(),
            named: certificate,
            client: session.client.as_ref(),
        };
        let Ok(permit) = self.server_permit(&request) else { return false };
        self.sessions.enter(session);
        tracing::info!(route = self.state.route.path, "a new stream goes on with the other server");
        self.start_session(&request, permit, Arc::clone(session), commands).is_ok()
    }

    fn post(self: Arc<Self>, parts: Parts, body: PostedBody) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move { self.post_to_stream(parts, body).await })
    }
}
