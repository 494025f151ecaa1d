//! The draft of a call: what its request says before the call opens.

use std::sync::Arc;

use crate::progress::clients::Client;
use crate::progress::correlate::signature::Signature;
use crate::progress::event::request_origin::RequestOrigin;
use crate::progress::ids::MappedId;
use crate::protocol::jsonrpc::Key;
use crate::protocol::mcp::Revision;

/// What a request says about the call that it opens.
#[derive(Debug)]
pub(crate) struct CallDraft {
    pub(crate) id: MappedId,
    pub(crate) token: Option<MappedId>,
    pub(crate) revision: Option<Revision>,
    pub(crate) lacks_token: bool,
    pub(crate) client: Option<Arc<Client>>,
    pub(crate) origin: RequestOrigin,
    pub(crate) asks_for_task: bool,
    pub(crate) about_task: Option<Key>,
    /// Whether the request waits for one of Milepost's own tasks, as long as the task lives.
    pub(crate) waits_for_task: bool,
    /// See [`Call::signature`](crate::progress::correlate::call::Call::signature).
    pub(crate) signature: Option<Box<Signature>>,
}
