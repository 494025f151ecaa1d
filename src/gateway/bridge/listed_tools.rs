//! The tools of a shared server, as its clients have listed them: which arguments their calls repeat in headers
//! (2026-07-28).

use std::collections::BTreeSet;

use super::session::{BridgeSession, SessionKind};
use crate::progress::{Payload, StreamId, TransmitKind};
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp;

/// The streams on which a list of tools is awaited.
#[derive(Default)]
pub(crate) struct ListedTools {
    asked: BTreeSet<StreamId>,
}

impl ListedTools {
    /// A client asks on a stream.
    pub(crate) fn ask(&mut self, session: &BridgeSession, stream: StreamId, request: &Message) {
        let lists = request.method().as_deref() == Some(mcp::TOOLS_LIST);
        if lists && session.kind == SessionKind::Shared {
            self.asked.insert(stream);
        }
    }

    /// The server sends a message on a stream.
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
            // The tools have changed, so the learned headers may be wrong now.
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
