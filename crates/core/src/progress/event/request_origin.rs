//! What is known about a request beside its text: its trace, and its path through a fleet of replicas.

use std::sync::Arc;

use bytes::Bytes;

use crate::protocol::json;
use crate::protocol::trace_context::TraceContext;

/// The path of a request to the replica that serves it, if several replicas serve the same route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaHop {
    /// The address of the replica that owns the request's session.
    pub owner: String,
    /// Whether another replica has received the request and forwarded it.
    pub forwarded: bool,
}

/// What is known about a request beside its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// The trace that the request belongs to.
    pub trace: Option<Arc<TraceContext>>,
    /// The path of the request through a fleet, if a replica of the fleet owns its session.
    pub hop: Option<Arc<ReplicaHop>>,
}

impl RequestOrigin {
    /// Returns the origin of a request: its own trace from these members
    /// ([`META_TRACE`](crate::protocol::mcp::META_TRACE)), else the trace of `around`, and the path of `around`.
    pub(crate) fn of_request([parent, state]: &[Option<Bytes>; 2], around: Self) -> Self {
        let own = parent.as_deref().and_then(json::decode_str).and_then(|parent| {
            let state = state.as_deref().and_then(json::decode_str);
            TraceContext::read(parent.as_bytes(), state.as_deref().map(str::as_bytes))
        });
        Self { trace: own.map(Arc::new).or(around.trace), hop: around.hop }
    }
}
