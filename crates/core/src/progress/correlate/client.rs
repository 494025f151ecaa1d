//! The clients and the origin of their requests, as far as they are known.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use crate::progress::clients;
use crate::progress::clients::Client;
use crate::progress::correlate::correlator::Correlator;
use crate::progress::event::request_origin::RequestOrigin;
use crate::progress::event::summary::OpenCall;
use crate::progress::ids::{CallId, StreamId};
use crate::protocol::json;
use crate::protocol::mcp::Revision;
use crate::protocol::trace_context::TraceContext;

/// The words in a notification that Milepost writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wording {
    /// The server's words, or words of Milepost's own.
    Any,
    /// Only the server's words (`words_in_2024 = false`).
    Server,
    /// No words: the client fails on them.
    None,
}

impl Correlator {
    /// A request that is open.
    pub fn opened(&self, id: CallId) -> Option<OpenCall<'_>> {
        let call = self.ledger.get(id)?;
        Some(OpenCall {
            call: id,
            method: &call.method,
            tool: call.tool.as_deref(),
            id: &call.id.client,
            token: call.token.as_ref().map(|token| &token.client),
            client: call.client.as_ref().or(self.client.as_ref()),
            opened: call.opened,
        })
    }

    /// Learns the name of the client from `initialize`.
    pub(crate) fn learn_client(&mut self, stream: StreamId, params: &Bytes) {
        let info = json::member(params, "clientInfo").unwrap_or_default();
        let (name, version) = name_and_version(&info);
        // Where several clients share the server, the name of one client must not stand for the
        // others.
        if !self.topology.has_strangers() {
            self.client = Client::new(&name, &version).map(Arc::new);
        }
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.is_orderly |= clients::is_orderly(&name, &version);
        }
    }

    /// The client that a request itself names (MCP 2026-07-28 and later: `_meta` of each request).
    pub(crate) fn client_in(&self, info: &Bytes) -> Option<Arc<Client>> {
        let (name, version) = name_and_version(info);
        let client = Client::new(&name, &version)?;
        // Nearly every request names the same client: share its allocation.
        let known = self.client.as_ref().filter(|known| ***known == client);
        Some(known.cloned().unwrap_or_else(|| Arc::new(client)))
    }

    /// Gives the following client messages on a stream an origin. A request that names a trace
    /// itself keeps that trace.
    pub fn set_origin(&mut self, stream: StreamId, origin: RequestOrigin) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.origin = origin;
        }
    }

    /// The origin of a request with these members ([`META_TRACE`](crate::protocol::mcp::META_TRACE)).
    pub(crate) fn origin_in(
        &self,
        stream: StreamId,
        [parent, state]: &[Option<Bytes>; 2],
    ) -> RequestOrigin {
        let own = parent.as_deref().and_then(decoded).and_then(|parent| {
            let state = state.as_deref().and_then(decoded);
            TraceContext::read(parent.as_bytes(), state.as_deref().map(str::as_bytes))
        });
        let around = self.streams.get(&stream).map(|stream| stream.origin.clone());
        let RequestOrigin { trace, hop } = around.unwrap_or_default();
        RequestOrigin { trace: own.map(Arc::new).or(trace), hop }
    }

    /// The words that a notification of Milepost may have for this call. Only progress of 2024-11-05 has no
    /// `message`: an unknown member there, which clients ignore that do not know it.
    pub(crate) fn wording_of(&self, id: CallId) -> Wording {
        let call = self.ledger.get(id);
        let own = call.and_then(|call| call.revision);
        if own.or(self.revision) != Some(Revision::V2024_11_05) {
            return Wording::Any;
        }
        let client = call.and_then(|call| call.client.as_ref()).or(self.client.as_ref());
        match self.policy_of(id).words_in_2024 {
            _ if client.is_some_and(|client| clients::fails_on_words(client)) => Wording::None,
            true => Wording::Any,
            false => Wording::Server,
        }
    }

    /// The client, if `initialize` named it.
    pub fn client(&self) -> Option<&Arc<Client>> {
        self.client.as_ref()
    }

    /// Sets the client where this filter did not see `initialize`.
    pub fn set_client(&mut self, client: Option<Arc<Client>>) {
        // `None` means that the caller does not know the client. A known client stays.
        self.client = client.or_else(|| self.client.take());
    }

    /// Sets the revision that was agreed on where this filter did not see the handshake.
    pub fn set_revision(&mut self, revision: Option<Revision>) {
        self.revision = revision.or(self.revision);
    }

    /// The revision that was agreed on, as far as is known.
    pub fn revision(&self) -> Option<Revision> {
        self.revision
    }
}

/// The text of a JSON string.
pub(crate) fn decoded(text: &[u8]) -> Option<String> {
    json::decode_str(text).map(Cow::into_owned)
}

/// The name and version of an `Implementation`.
fn name_and_version(info: &Bytes) -> (String, String) {
    let text = |key: &str| {
        let text = json::member(info, key).unwrap_or_default();
        json::decode_str(&text).map(|words| words.into_owned()).unwrap_or_default()
    };
    (text("name"), text("version"))
}
