//! A message on its way to the server, and the kinds of requests that the leg itself acts on.

use crate::progress::StreamId;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp;
use crate::relay::legs::ClientHeaders;
use crate::transport::mcp_http::header_mirror;

/// The kinds of requests whose answers the leg must handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// `initialize` of a client.
    Initialize,
    /// `tools/list` of a client (2026-07-28).
    Tools,
    /// Any other request of a client.
    Other,
    /// `initialize`, sent by the leg to renew a session.
    Renewal,
    /// `tools/list`, sent by the leg itself.
    Refresh,
}

impl RequestKind {
    fn of(message: &Message, modern: bool) -> Self {
        match message.method().as_deref() {
            Some(mcp::INITIALIZE) => Self::Initialize,
            Some(mcp::TOOLS_LIST) if modern => Self::Tools,
            _ => Self::Other,
        }
    }
}

/// A message for the server.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    /// The headers of the client's HTTP request with this message.
    pub(crate) headers: ClientHeaders,
    pub(crate) stream: StreamId,
    /// Whether the message belongs to 2026-07-28, which has no sessions.
    pub(crate) modern: bool,
    /// Whether the message was sent before, and the server certainly did not process it.
    pub(crate) is_retry: bool,
    /// The kind of the message, if the leg itself sends it.
    pub(crate) own: Option<RequestKind>,
}

impl Outgoing {
    pub(crate) fn new(message: Message, headers: ClientHeaders, stream: StreamId) -> Self {
        let modern = header_mirror::repeats(&message).is_some();
        Self { message, headers, stream, modern, is_retry: false, own: None }
    }

    /// Returns a message that the leg itself sends.
    pub(crate) fn own(
        kind: RequestKind,
        message: Message,
        headers: ClientHeaders,
        stream: StreamId,
    ) -> Self {
        Self { own: Some(kind), ..Self::new(message, headers, stream) }
    }

    /// Whether the message has requests, to which the server must answer.
    pub(crate) fn has_requests(&self) -> bool {
        !requests(&self.message).is_empty()
    }

    pub(crate) fn kind(&self) -> RequestKind {
        self.own.unwrap_or_else(|| RequestKind::of(&self.message, self.modern))
    }

    /// Whether the message begins a session.
    pub(crate) fn begins_session(&self) -> bool {
        matches!(self.kind(), RequestKind::Initialize | RequestKind::Renewal)
    }

    pub(crate) fn is(&self, method: &str) -> bool {
        self.message.method().is_some_and(|own| own == method)
    }
}

/// Returns the requests in a message: the message itself, or those of a batch.
pub(crate) fn requests(message: &Message) -> Vec<Message> {
    match message.kind() {
        Kind::Request => vec![message.clone()],
        Kind::Batch => message.elements().filter(|one| one.kind() == Kind::Request).collect(),
        _ => Vec::new(),
    }
}
