//! Tools are listed once more when a server wants other headers for a call (2026-07-28, -32020).

use bytes::Bytes;

use super::HttpUpstream;
use super::exchange::Outgoing;
use crate::protocol::json::Members;
use crate::protocol::jsonrpc::Message;
use crate::protocol::{json, mcp};
use crate::relay::http_upstream::pending::What;

/// The specification's code for headers that do not match (26:basic §Error Codes).
const HEADER_MISMATCH: &[u8] = b"-32020";

/// Pages of a server's list of tools that are requested.
const PAGES_MAX: u32 = 16;

/// Calls that wait for a list of tools.
#[derive(Default)]
pub(crate) struct Refresh {
    /// What is sent again, and what the server said to it.
    pub(crate) waiting: Vec<(Outgoing, Bytes)>,
    /// What requests have to say of their client.
    meta: Bytes,
    pages: u32,
}

impl HttpUpstream {
    /// Whether a call was refused for headers that may be known better once tools are listed again.
    pub(crate) fn may_refresh(&self, out: &Outgoing, answer: &Message) -> bool {
        let code = answer.error().and_then(|error| json::member(&error, "code"));
        let mismatch = code.is_some_and(|code| *code == *HEADER_MISMATCH);
        mismatch && out.modern && !out.again && out.is(mcp::TOOLS_CALL)
    }

    /// A call waits for the list of tools.
    pub(crate) fn refresh(&mut self, mut out: Outgoing, refusal: Bytes) {
        tracing::info!("the server wants other headers for a call: its tools are listed again");
        self.asked.take(out.stream);
        out.again = true;
        let meta = out.message.params().and_then(|params| json::member(&params, "_meta"));
        self.refresh.waiting.push((out, refusal));
        if self.refresh.waiting.len() == 1 {
            self.refresh.meta = own_meta(&meta.unwrap_or_default());
            self.refresh.pages = 0;
            self.list_tools(None);
        }
    }

    fn list_tools(&mut self, cursor: Option<&Bytes>) {
        let stream = self.next_stream();
        let cursor = cursor.map(|cursor| [br#""cursor":"#, &cursor[..], b","].concat());
        let head = format!(
            r#"{{"jsonrpc":"2.0","id":"milepost-{}","method":"{}","params":{{"#,
            stream.0,
            mcp::TOOLS_LIST
        );
        let cursor = cursor.unwrap_or_default();
        let parts = [head.as_bytes(), &cursor, br#""_meta":"#, &self.refresh.meta, b"}}"];
        let headers = self.refresh.waiting.first().and_then(|(out, _)| out.headers.clone());
        let mut out = Outgoing::new(Message::parse(parts.concat().into()), headers, stream);
        out.own = Some(What::Refresh);
        self.launch(out);
    }

    /// A page of the tools has come.
    pub(crate) fn refreshed(&mut self, answer: &Message) {
        let Some(result) = answer.result() else { return self.refresh_failed() };
        self.params.learn(&result);
        self.refresh.pages += 1;
        let cursor = json::member(&result, "nextCursor").filter(|cursor| cursor.starts_with(b"\""));
        if let Some(cursor) = cursor.filter(|_| self.refresh.pages < PAGES_MAX) {
            return self.list_tools(Some(&cursor));
        }
        for (out, _) in std::mem::take(&mut self.refresh.waiting) {
            self.requeue(out);
        }
    }

    /// The tools cannot be listed: what the server said to the calls stands.
    pub(crate) fn refresh_failed(&mut self) {
        for (out, refusal) in std::mem::take(&mut self.refresh.waiting) {
            self.heard(super::Source::Exchange(out.stream), Message::parse(refusal));
        }
    }
}

/// What every request has to have in its `_meta`, and not the call's token.
fn own_meta(meta: &Bytes) -> Bytes {
    let prefix = mcp::META_PREFIX.as_bytes();
    let is_own = |key: &[u8]| json::unescape(key).is_some_and(|key| key.starts_with(prefix));
    let members = Members::new(meta).filter(|member| is_own(&meta[member.key.clone()]));
    let members = members.map(|member| &meta[member.key.start..member.value.end]);
    let members: Vec<&[u8]> = members.collect();
    Bytes::from([b"{", &members.join(&b","[..])[..], b"}"].concat())
}
