//! The members of a request that decide how it is handled. They are read once for all parts that need them.

use bytes::Bytes;

use crate::protocol::jsonrpc::Message;
use crate::protocol::{json, mcp};

/// The members of a request's `params` and of `_meta` in it that decide how the request is handled, as JSON texts.
#[derive(Debug, Clone, Default)]
pub struct RequestMembers {
    /// The member `name`.
    pub(crate) tool: Option<Bytes>,
    pub(crate) task: Option<Bytes>,
    /// The member `taskId`.
    pub(crate) about_task: Option<Bytes>,
    /// The member `progressToken`.
    pub(crate) token: Option<Bytes>,
    /// The protocol revision that the request names, which is a date.
    pub(crate) date: Option<Bytes>,
    pub(crate) client: Option<Bytes>,
    /// The members `traceparent` and `tracestate`.
    pub(crate) trace: [Option<Bytes>; 2],
}

impl RequestMembers {
    /// Reads the members of a message. A message without `params` has none.
    pub fn of(message: &Message) -> Self {
        let Some(params) = message.params() else { return Self::default() };
        let [meta, tool, task, about_task] =
            json::members(&params, ["_meta", "name", "task", "taskId"]);
        let (parent, state) = mcp::META_TRACE;
        let members = ["progressToken", mcp::META_REVISION, mcp::META_CLIENT, parent, state];
        let [token, date, client, parent, state] =
            meta.map_or([const { None }; 5], |meta| json::members(&meta, members));
        Self { tool, task, about_task, token, date, client, trace: [parent, state] }
    }

    /// Returns the members of `message` if they have already been read. They have been for a `whole` message, but not
    /// for an element of an array.
    pub fn known<'a>(whole: Option<(&Message, &'a Self)>, message: &Message) -> Option<&'a Self> {
        whole.filter(|(whole, _)| whole.raw() == message.raw()).map(|(_, members)| members)
    }

    /// Returns the protocol revision that the request names in `_meta`, which is a date.
    pub fn date(&self) -> Option<String> {
        Some(json::decode_str(self.date.as_ref()?)?.into_owned())
    }

    /// Whether the request names a progress token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }
}
