//! The session with the server, up to 2025-11-25: its id and revision, and how it is begun again when
//! the server has lost it.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::HttpUpstream;
use super::exchange::Outgoing;
use crate::progress::{Payload, StreamId};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::{json, mcp};
use crate::relay::http_upstream::pending::What;
use crate::relay::legs::Headers;
use crate::transport::mcp_http::header_names::{REVISION, SESSION_ID};

/// Where a session stands.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Messages may be sent.
    #[default]
    Free,
    /// It is being begun: everything else waits for the answer.
    Begins,
    /// It is being begun again.
    Renews,
    /// It is lost, and has to be begun again before anything else.
    Lost,
}

/// One session.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) phase: Phase,
    /// Its id, if the server has given it one.
    pub(crate) id: Option<HeaderValue>,
    /// The revision that was agreed on.
    revision: Option<HeaderValue>,
    /// Sessions begun before.
    pub(crate) number: u64,
    /// How the client began it, once the server has agreed.
    pub(crate) begun: Option<Message>,
    /// How the client is beginning it.
    beginning: Option<Message>,
    /// What the client sent its last message with.
    pub(crate) said: Headers,
}

impl Session {
    /// `initialize` is sent.
    pub(crate) fn begins(&mut self, out: &Outgoing) {
        self.phase = Phase::Begins;
        self.number += 1;
        (self.id, self.revision, self.begun) = (None, None, None);
        self.beginning = Some(out.message.clone());
    }

    /// `initialize` is answered.
    pub(crate) fn agreed(&mut self, answer: &Message) {
        self.phase = Phase::Free;
        let beginning = self.beginning.take();
        if answer.result().is_some() {
            self.note_revision(answer);
            self.begun = beginning;
        } else {
            self.id = None;
        }
    }

    fn note_revision(&mut self, answer: &Message) {
        let result = answer.result().unwrap_or_default();
        let revision = json::member(&result, "protocolVersion");
        let revision =
            revision.and_then(|date| HeaderValue::from_str(&json::decode_str(&date)?).ok());
        self.revision = revision;
    }

    /// What every request of the session says.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
        let id = self.id.clone().map(|id| (SESSION_ID, id));
        let revision = self.revision.clone().map(|revision| (REVISION, revision));
        id.into_iter().chain(revision)
    }
}

impl HttpUpstream {
    /// The server does not know the session any more: what it refused is sent again in a new one.
    pub(crate) fn session_lost(&mut self, stream: StreamId) {
        let Some(exchange) = self.exchanges.remove(&stream) else { return };
        let (mut out, session) = (exchange.out, exchange.session);
        // An answer is for a request of the old session, and the new one begins with this notification.
        let in_vain = out.message.kind() == Kind::Response || out.is(mcp::INITIALIZED);
        if out.again || out.own.is_some() {
            let why = "the server has lost the session again";
            self.refuse_all(stream, why, Some(404));
        } else if !in_vain {
            self.asked.take(stream);
            out.again = true;
            self.requeue(out);
        }
        if session == Some(self.session.number) && self.session.phase == Phase::Free {
            tracing::warn!(
                "the server has lost the session (HTTP status 404): it is begun again as the client \
                 began it; what the server knew of it is gone"
            );
            self.session.phase = Phase::Lost;
            self.renew();
        }
    }

    /// Begins the session again, as the client began it.
    pub(crate) fn renew(&mut self) {
        self.close_listen();
        self.session.id = None;
        self.session.number += 1;
        let stream = self.next_stream();
        let own = format!(r#""milepost-{}""#, stream.0);
        let begun = self.session.begun.as_ref();
        let again = begun.and_then(|begun| Some((begun.raw().clone(), begun.id_range()?)));
        let Some((raw, id)) = again else { return self.renewal_failed("it never began") };
        let text = Payload::splice(&raw, id, Bytes::from(own)).to_bytes();
        let mut out = Outgoing::new(Message::parse(text), self.session.said.clone(), stream);
        out.own = Some(What::Renewal);
        self.session.phase = Phase::Renews;
        self.launch(out);
    }

    /// Whether something is under way that begins it again.
    pub(crate) fn renews(&self) -> bool {
        self.asked.has_any(What::Renewal)
            || self.exchanges.values().any(|exchange| exchange.out.own == Some(What::Other))
    }

    /// The server has answered.
    pub(crate) fn renewed(&mut self, answer: &Message) {
        if answer.result().is_none() {
            return self.renewal_failed("the server refuses to begin it again");
        }
        self.session.note_revision(answer);
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, mcp::INITIALIZED);
        let stream = self.next_stream();
        let headers = self.session.said.clone();
        let mut out = Outgoing::new(Message::parse(text.into()), headers, stream);
        out.own = Some(What::Other);
        self.launch(out);
    }

    /// Nothing that waits for the session can be sent. The next message tries again.
    pub(crate) fn renewal_failed(&mut self, why: &str) {
        tracing::warn!(why, "the session cannot be begun again");
        self.session.phase = Phase::Lost;
        let why = format!("the session with the server was lost: {why}");
        self.refuse_queue(&why);
    }

    /// The server has taken the notification behind which a session is there.
    pub(crate) fn ready_taken(&mut self) {
        if self.session.phase == Phase::Renews {
            self.session.phase = Phase::Free;
            tracing::info!("the session with the server has begun again");
        }
        match &mut self.wire {
            Some(wire) => wire.works(),
            None => {
                self.close_listen();
                self.open_listen();
            }
        }
    }

    /// Everything that waits gets an error, or is dropped.
    pub(crate) fn refuse_queue(&mut self, why: &str) {
        for out in std::mem::take(&mut self.queue) {
            self.asked.enter(&out.message, out.stream, out.what());
            self.refuse_all(out.stream, why, None);
        }
    }

    /// A message waits in the place that it had.
    pub(crate) fn requeue(&mut self, out: Outgoing) {
        let at = self.queue.partition_point(|other| other.stream < out.stream);
        self.queue.insert(at, out);
    }
}
