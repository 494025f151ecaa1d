//! The request for log messages that Milepost sends to a server whose client sends none.

use bytes::Bytes;

use crate::progress::log_request::LogRequest;
use crate::progress::payload::Payload;
use crate::protocol::jsonrpc::Key;
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};

/// The id of Milepost's only request. No client has this id by chance.
const SET_LEVEL_ID: &[u8] = b"milepost:logging/setLevel";

use crate::progress::correlate::correlator::Correlator;

impl Correlator {
    /// Notes whether a server announces log messages in its answer to `initialize`.
    pub(crate) fn learn_server(&mut self, result: &Bytes) {
        let capabilities = json::member(result, "capabilities").unwrap_or_default();
        let logs = json::member(&capabilities, "logging").is_some_and(|one| one.starts_with(b"{"));
        // Only the first answer decides: a later `initialize` must not start the request again.
        if logs && self.log_request == LogRequest::Unknown {
            self.log_request = LogRequest::Possible;
        }
    }

    /// Notes that the client itself requests log messages: its request applies.
    pub(crate) fn client_sets_level(&mut self) {
        // The answer to Milepost's pending request must still be recognised, and withheld from the
        // client.
        if self.log_request != LogRequest::Pending {
            self.log_request = LogRequest::Done;
        }
    }

    /// Requests log messages of the route's level, once, when the client has begun with a server of
    /// a revision before 2026-07-28. From 2026-07-28 on each request of a client names its own
    /// level.
    pub(crate) fn ask_for_logs(&mut self) {
        let Some(level) = self.policy.log_level.filter(|_| !self.policy.call.observes()) else {
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
        self.to_server.push_back(Payload::from(Bytes::from(parts.concat())));
    }

    /// Whether an answer with this id belongs to Milepost's own request. The answer ends this
    /// request.
    pub(crate) fn is_answer_to_us(&mut self, id: &Key) -> bool {
        let ours = self.log_request == LogRequest::Pending
            && matches!(id, Key::Text(text) if **text == *SET_LEVEL_ID)
            // A client that uses this id itself waits for the answer.
            && self.ledger.by_id(id).is_none();
        if ours {
            self.log_request = LogRequest::Done;
        }
        ours
    }
}
