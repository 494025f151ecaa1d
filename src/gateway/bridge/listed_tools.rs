//! The tools of a shared server, as its clients have listed them: they say which arguments a call repeats in headers
//! (2026-07-28).

use std::collections::BTreeSet;

use super::session::{BridgeSession, SessionKind};
use crate::progress::{Payload, StreamId, TransmitKind};
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp;

/// The streams that wait for a list of tools.
#[derive(Default)]
pub(crate) struct ListedTools {
    asked: BTreeSet<StreamId>,
}

impl ListedTools {
    /// Notes that a client sends a request on a stream.
    pub(crate) fn ask(&mut self, session: &BridgeSession, stream: StreamId, request: &Message) {
        let lists = request.method().as_deref() == Some(mcp::TOOLS_LIST);
        if lists && session.kind == SessionKind::Shared {
            self.asked.insert(stream);
        }
    }

    /// Reads a message that the server sends on a stream, if it is a list of tools or says that the tools have changed.
    pub(crate) fn hear(
        &mut self,
        session: &BridgeSession,
        stream: StreamId,
        kind: &TransmitKind,
        payload: &Payload,
    ) {
        let message = || Message::parse(payload.to_bytes());
        match kind {
            TransmitKind::Answer(_) => {
                if self.asked.remove(&stream)
                    && let Some(result) = message().result()
                {
                    session.tools().note(&result);
                }
            }
            TransmitKind::Progress | TransmitKind::Batch(..) => {}
            // The tools have changed, so the headers learned from the list may be wrong now.
            _ if session.kind == SessionKind::Shared
                && message().method().as_deref() == Some(mcp::TOOLS_CHANGED) =>
            {
                session.tools().clear();
            }
            _ => {}
        }
    }

    /// Notes that the client of a stream has disconnected.
    pub(crate) fn leave(&mut self, stream: StreamId) {
        self.asked.remove(&stream);
    }
}
