//! Calls that a server has refused because of their headers (2026-07-28, -32020). They wait until the server's tools
//! have been listed again.

use bytes::Bytes;

use super::outgoing::{Outgoing, RequestKind};
use super::send_queue::is_request;
use crate::progress::StreamId;
use crate::protocol::json;
use crate::protocol::json::Members;
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp;

/// The specification's error code for headers that do not match (26:basic §Error Codes).
const HEADER_MISMATCH: &[u8] = b"-32020";

/// Maximum number of pages of a server's list of tools that are requested.
const PAGES_MAX: u32 = 16;

/// Calls that wait for a list of tools.
#[derive(Default)]
pub(crate) struct ToolRefresh {
    /// The calls to send again, each with the server's refusal.
    waiting: Vec<(Outgoing, Bytes)>,
    /// The members of `_meta` that requests must have.
    meta: Bytes,
    pages: u32,
}

impl ToolRefresh {
    /// Whether an answer refuses a call because of headers that a new list of tools may correct.
    pub(crate) fn applies_to(out: &Outgoing, answer: &Message) -> bool {
        let code = answer.error().and_then(|error| json::member(&error, "code"));
        let mismatch = code.is_some_and(|code| *code == *HEADER_MISMATCH);
        // A call that has already been repeated with new headers is not repeated again.
        mismatch && out.modern && !out.is_retry && out.is(mcp::TOOLS_CALL)
    }

    /// Adds a call. Returns whether it is the first, so that the tools must be listed.
    pub(crate) fn add(&mut self, mut out: Outgoing, refusal: Bytes) -> bool {
        tracing::info!("the server wants other headers for a call: its tools are listed again");
        out.is_retry = true;
        let meta = out.message.params().and_then(|params| json::member(&params, "_meta"));
        self.waiting.push((out, refusal));
        let is_first = self.waiting.len() == 1;
        if is_first {
            self.meta = own_meta(&meta.unwrap_or_default());
            self.pages = 0;
        }
        is_first
    }

    /// Returns the request for a page of the list.
    pub(crate) fn list_request(&self, stream: StreamId, cursor: Option<&Bytes>) -> Outgoing {
        let cursor = cursor.map(|cursor| [br#""cursor":"#, &cursor[..], b","].concat());
        let head = format!(
            r#"{{"jsonrpc":"2.0","id":"milepost-{}","method":"{}","params":{{"#,
            stream.0,
            mcp::TOOLS_LIST
        );
        let cursor = cursor.unwrap_or_default();
        let parts = [head.as_bytes(), &cursor, br#""_meta":"#, &self.meta, b"}}"];
        let headers = self.waiting.first().and_then(|(out, _)| out.headers.clone());
        let message = Message::parse(parts.concat().into());
        Outgoing::own(RequestKind::Refresh, message, headers, stream)
    }

    /// Returns the cursor of the next page, if there is one and it is to be requested.
    pub(crate) fn next_page(&mut self, result: &Bytes) -> Option<Bytes> {
        self.pages += 1;
        let cursor = json::member(result, "nextCursor").filter(|cursor| cursor.starts_with(b"\""));
        // Limit the pages, because the list of a faulty server may never end.
        cursor.filter(|_| self.pages < PAGES_MAX)
    }

    /// Removes a call that its client has cancelled. Returns whether it was waiting.
    pub(crate) fn cancel(&mut self, id: &Key) -> bool {
        let at = self.waiting.iter().position(|(out, _)| is_request(&out.message, id));
        at.map(|at| self.waiting.remove(at)).is_some()
    }

    /// Removes all calls, each with the server's refusal.
    pub(crate) fn take_all(&mut self) -> Vec<(Outgoing, Bytes)> {
        std::mem::take(&mut self.waiting)
    }
}

/// Returns the members of a call's `_meta` that every request must have, without the call's token.
fn own_meta(meta: &Bytes) -> Bytes {
    let prefix = mcp::META_PREFIX.as_bytes();
    let is_own = |key: &[u8]| json::unescape(key).is_some_and(|key| key.starts_with(prefix));
    let members = Members::new(meta).filter(|member| is_own(&meta[member.key.clone()]));
    let members = members.map(|member| &meta[member.key.start..member.value.end]);
    let members: Vec<&[u8]> = members.collect();
    Bytes::from([b"{", &members.join(&b","[..])[..], b"}"].concat())
}
