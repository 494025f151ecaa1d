//! The session with the server, in revisions up to 2025-11-25: its id, its revision, and the `initialize` that renews a
//! lost session.

use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::outgoing::{Outgoing, RequestKind};
use crate::progress::{Payload, StreamId};
use crate::protocol::json;
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp;
use crate::relay::legs::{ClientHead, ClientHeaders};
use crate::transport::http::cookies::SessionCookies;
use crate::transport::mcp_http::header_names::REVISION;
use crate::transport::mcp_http::header_names::SESSION_ID;

/// The state of a session.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionPhase {
    /// Messages may be sent.
    #[default]
    Free,
    /// `initialize` was sent, and everything else waits for the answer.
    Begins,
    /// `initialize` was sent again to renew the session, and everything else waits.
    Renews,
    /// The session is lost, and must be renewed before anything else is sent.
    Lost,
}

/// One session with the server.
#[derive(Default)]
pub(crate) struct UpstreamSession {
    pub(crate) phase: SessionPhase,
    /// The session id, if the server has sent one.
    pub(crate) id: Option<HeaderValue>,
    /// Deadline for the renewal of the session.
    renews_until: Option<Instant>,
    /// The negotiated revision.
    revision: Option<HeaderValue>,
    /// The number of this session. The renewed session has a new number.
    pub(crate) number: u64,
    /// The client's `initialize`, once the server has accepted it.
    begun: Option<Message>,
    /// The client's `initialize`, until the server has answered.
    beginning: Option<Message>,
    /// The headers of the client's last request, for requests of the leg itself. Once the server has accepted
    /// credentials, they are replaced only by a request whose credentials it has accepted too.
    pub(crate) client_headers: ClientHeaders,
    /// Whether the server has accepted `client_headers`.
    has_accepted: bool,
    /// The cookies that the server has set.
    pub(crate) cookies: SessionCookies,
}

impl UpstreamSession {
    /// Notes a message that is being sent.
    pub(crate) fn note_sent(&mut self, out: &Outgoing) {
        if out.kind() == RequestKind::Initialize {
            self.phase = SessionPhase::Begins;
            self.number += 1;
            // Forget the negotiated values of the previous session.
            (self.id, self.revision, self.begun) = (None, None, None);
            self.beginning = Some(out.message.clone());
        }
        if let Some(headers) = &out.headers
            && (!self.has_accepted || self.has_credentials_of(headers))
        {
            self.client_headers.clone_from(&out.headers);
        }
    }

    /// Notes the headers of a client's request that the server has answered with success.
    pub(crate) fn accept_headers(&mut self, headers: &Arc<ClientHead>) {
        if !self.has_accepted || !self.has_credentials_of(headers) {
            self.client_headers = Some(Arc::clone(headers));
        }
        self.has_accepted = true;
    }

    /// Whether the client presents the same credentials as before.
    fn has_credentials_of(&self, headers: &HeaderMap) -> bool {
        let known = self.client_headers.as_ref();
        let known = known.into_iter().flat_map(|known| known.get_all(AUTHORIZATION));
        known.eq(headers.get_all(AUTHORIZATION))
    }

    /// Returns the number of the session that a message belongs to, if any.
    pub(crate) fn number_for(&self, out: &Outgoing) -> Option<u64> {
        // Requests of 2026-07-28 do not belong to a session, and `initialize` begins one.
        let in_session = !out.modern && !out.begins_session();
        (in_session && self.id.is_some()).then_some(self.number)
    }

    /// Whether the server has accepted an `initialize` of the client.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Handles the answer to the client's `initialize`.
    pub(crate) fn set_revision(&mut self, answer: &Message) {
        self.phase = SessionPhase::Free;
        let beginning = self.beginning.take();
        if answer.result().is_some() {
            self.note_revision(answer);
            self.begun = beginning;
        } else {
            // The server refused to begin a session, so an id in the refusal means nothing.
            self.id = None;
        }
    }

    /// Notes the revision in the answer to an `initialize`.
    pub(crate) fn note_revision(&mut self, answer: &Message) {
        let result = answer.result().unwrap_or_default();
        let revision = json::member(&result, "protocolVersion");
        let revision =
            revision.and_then(|date| HeaderValue::from_str(&json::decode_str(&date)?).ok());
        self.revision = revision;
    }

    /// Returns the headers that every request of the session must have.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
        let id = self.id.clone().map(|id| (SESSION_ID, id));
        let revision = self.revision.clone().map(|revision| (REVISION, revision));
        id.into_iter().chain(revision)
    }

    /// Returns the client's `initialize` with an id of Milepost, to renew the session; `None` if the session never
    /// began.
    pub(crate) fn renew(&mut self, stream: StreamId) -> Option<Outgoing> {
        self.id = None;
        self.number += 1;
        let begun = self.begun.as_ref()?;
        // Use another id, because the client may be using its own id for another request by now.
        let own = format!(r#""milepost-{}""#, stream.0);
        let text = Payload::splice(begun.raw(), begun.id_range()?, Bytes::from(own)).to_bytes();
        self.phase = SessionPhase::Renews;
        let headers = self.client_headers.clone();
        Some(Outgoing::own(RequestKind::Renewal, Message::parse(text), headers, stream))
    }

    /// Sets the deadline for the renewal of the session.
    pub(crate) fn limit_renewal(&mut self, until: Instant) {
        self.renews_until = Some(until);
    }

    /// Returns the time at which the renewal of a session is given up.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.renews_until.filter(|_| self.phase == SessionPhase::Renews)
    }

    /// Returns the notification that completes a renewed session.
    pub(crate) fn initialized(&self, stream: StreamId) -> Outgoing {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, mcp::INITIALIZED);
        let (message, headers) = (Message::parse(text.into()), self.client_headers.clone());
        Outgoing::own(RequestKind::Other, message, headers, stream)
    }

    /// Notes that the server has accepted the notification that completes a session.
    pub(crate) fn complete(&mut self) {
        if self.phase == SessionPhase::Renews {
            self.phase = SessionPhase::Free;
            tracing::info!("the session with the server has begun again");
        }
    }
}
