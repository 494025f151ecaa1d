//! The members of a request that decide about it, read once for all that ask for them.

use bytes::Bytes;

use crate::protocol::jsonrpc::Message;
use crate::protocol::{json, mcp};

/// The members of a request's `params` and of their `_meta` that decide about the request, as JSON texts.
#[derive(Debug, Clone, Default)]
pub struct RequestMembers {
    /// `name`.
    pub(crate) tool: Option<Bytes>,
    pub(crate) task: Option<Bytes>,
    /// `taskId`.
    pub(crate) about_task: Option<Bytes>,
    /// `progressToken`.
    pub(crate) token: Option<Bytes>,
    /// The date of the revision.
    pub(crate) date: Option<Bytes>,
    pub(crate) client: Option<Bytes>,
    /// `traceparent` and `tracestate`.
    pub(crate) trace: [Option<Bytes>; 2],
}

impl RequestMembers {
    /// Reads the members; none of a message without `params`.
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

    /// Returns the members of `message` if they are known: those of `whole`, unless `message` is an element of that
    /// array.
    pub fn known<'a>(whole: Option<(&Message, &'a Self)>, message: &Message) -> Option<&'a Self> {
        whole.filter(|(whole, _)| whole.raw() == message.raw()).map(|(_, members)| members)
    }

    /// The date of the revision that the request names in its `_meta`.
    pub fn date(&self) -> Option<String> {
        Some(json::decode_str(self.date.as_ref()?)?.into_owned())
    }

    /// Whether the request names a progress token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }
}
