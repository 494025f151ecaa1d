//! What is known about the client and the server of one connection, from `initialize` or from another filter.

use std::sync::Arc;

use bytes::Bytes;

use crate::progress::clients;
use crate::progress::clients::Client;
use crate::progress::correlate::open_calls::OpenCalls;
use crate::progress::correlate::server_queue::ServerQueue;
use crate::progress::ids::StreamId;
use crate::progress::log_request::LogRequest;
use crate::progress::policy::Policy;
use crate::progress::streams::ClientStreams;
use crate::protocol::jsonrpc::Key;
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};

/// The id of the only request that Milepost itself sends. No client uses this id by chance.
const SET_LEVEL_ID: &[u8] = b"milepost:logging/setLevel";

/// What is known about the client and the server of one connection. Also sends Milepost's own request for log messages
/// if the client requests none.
#[derive(Debug, Default)]
pub struct Handshake {
    /// The protocol revision that client and server have agreed on, if known.
    pub(crate) revision: Option<Revision>,
    /// The client, if `initialize` named it.
    pub(crate) client: Option<Arc<Client>>,
    log_request: LogRequest,
}

impl Handshake {
    /// Returns the client, if `initialize` named it.
    pub fn client(&self) -> Option<&Arc<Client>> {
        self.client.as_ref()
    }

    /// Returns the protocol revision that client and server have agreed on, if known.
    pub fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// Sets the client if this filter did not see `initialize`.
    pub(crate) fn set_client(&mut self, client: Option<Arc<Client>>) {
        // `None` means that the caller does not know the client. A known client stays.
        self.client = client.or_else(|| self.client.take());
    }

    /// Sets the agreed protocol revision if this filter did not see the handshake.
    pub(crate) fn set_revision(&mut self, revision: Option<Revision>) {
        self.revision = revision.or(self.revision);
    }

    /// Learns the name of the client from `initialize`.
    pub(crate) fn learn_client(
        &mut self,
        stream: StreamId,
        params: &Bytes,
        streams: &mut ClientStreams,
    ) {
        let info = json::member(params, "clientInfo").unwrap_or_default();
        let (name, version) = name_and_version(&info);
        // If several clients share the server, the name of one client must not stand for the others.
        if !streams.topology.has_strangers() {
            self.client = Client::new(&name, &version).map(Arc::new);
        }
        if let Some(stream) = streams.get_mut(&stream) {
            stream.is_orderly |= clients::is_orderly(&name, &version);
        }
    }

    /// Returns the client that a request itself names (`_meta`, MCP 2026-07-28 and later).
    pub(crate) fn client_in(&self, info: &Bytes) -> Option<Arc<Client>> {
        let (name, version) = name_and_version(info);
        let client = Client::new(&name, &version)?;
        // Nearly every request names the same client: share its allocation.
        let known = self.client.as_ref().filter(|known| ***known == client);
        Some(known.cloned().unwrap_or_else(|| Arc::new(client)))
    }

    /// Notes whether a server announces log messages in its answer to `initialize`.
    pub(crate) fn learn_server(&mut self, result: &Bytes) {
        let capabilities = json::member(result, "capabilities").unwrap_or_default();
        let logs = json::member(&capabilities, "logging").is_some_and(|one| one.starts_with(b"{"));
        // Only the first answer counts: a second `initialize` must not start the request for log messages again.
        if logs && self.log_request == LogRequest::Unknown {
            self.log_request = LogRequest::Possible;
        }
    }

    /// Notes that the client requests log messages itself, so Milepost does not.
    pub(crate) fn client_sets_level(&mut self) {
        // The answer to Milepost's pending request must still be recognised, and withheld from the
        // client.
        if self.log_request != LogRequest::Pending {
            self.log_request = LogRequest::Done;
        }
    }

    /// Requests log messages at the route's level once the client has finished the handshake. Only for servers of
    /// revisions before 2026-07-28: since then each request of a client names its own level.
    pub(crate) fn ask_for_logs(&mut self, policy: &Policy, to_server: &mut ServerQueue) {
        let Some(level) = policy.log_level.filter(|_| !policy.call.observes()) else {
            return;
        };
        let is_old = self.revision.is_some_and(|revision| revision < Revision::V2026_07_28);
        if self.log_request != LogRequest::Possible || !is_old {
            return;
        }
        self.log_request = LogRequest::Pending;
        let id = json::quote(&String::from_utf8_lossy(SET_LEVEL_ID));
        let head = br#"{"jsonrpc":"2.0","id":"#;
        let method = mcp::SET_LEVEL.as_bytes();
        let level = level.name().as_bytes();
        let parts: [&[u8]; 7] =
            [head, &id, br#","method":""#, method, br#"","params":{"level":""#, level, br#""}}"#];
        to_server.push(Bytes::from(parts.concat()));
    }

    /// Whether an answer with this id belongs to Milepost's own request. If so, that request has ended.
    pub(crate) fn is_answer_to_us(&mut self, id: &Key, open: &OpenCalls) -> bool {
        let ours = self.log_request == LogRequest::Pending
            && matches!(id, Key::Text(text) if **text == *SET_LEVEL_ID)
            // A client that uses this id itself waits for the answer.
            && open.ledger.by_id(id).is_none();
        if ours {
            self.log_request = LogRequest::Done;
        }
        ours
    }
}

/// Returns the name and version in an `Implementation` object.
fn name_and_version(info: &Bytes) -> (String, String) {
    let text = |key: &str| {
        let text = json::member(info, key).unwrap_or_default();
        json::decode_str(&text).map(|words| words.into_owned()).unwrap_or_default()
    };
    (text("name"), text("version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::policy::ask::LogLevel;

    #[test]
    fn logs_are_requested_once_of_a_server_that_announces_them() {
        let policy = Policy { log_level: Some(LogLevel::Info), ..Policy::default() };
        let (mut handshake, mut to_server) = (Handshake::default(), ServerQueue::default());
        handshake.set_revision(Some(Revision::V2025_06_18));
        handshake.ask_for_logs(&policy, &mut to_server);
        assert!(to_server.is_empty());
        handshake.learn_server(&Bytes::from_static(b"{\"capabilities\":{\"logging\":{}}}"));
        handshake.ask_for_logs(&policy, &mut to_server);
        handshake.ask_for_logs(&policy, &mut to_server);
        assert!(to_server.pop().is_some() && to_server.is_empty());
        let (id, open) =
            (Key::Text(Bytes::from_static(SET_LEVEL_ID)), OpenCalls::new(&Policy::default()));
        assert!(!handshake.is_answer_to_us(&Key::Integer(1), &open));
        assert!(handshake.is_answer_to_us(&id, &open));
        assert!(!handshake.is_answer_to_us(&id, &open));
    }
}
