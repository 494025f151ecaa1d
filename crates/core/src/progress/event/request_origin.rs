//! What is known of a request beside its text: its trace, and its way through a fleet of replicas.

use std::sync::Arc;

use crate::protocol::trace_context::TraceContext;

/// The way of a request to the replica that serves it, where several replicas serve one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaHop {
    /// The address of the replica that owns the request's session.
    pub owner: String,
    /// Another replica has received the request and passed it on.
    pub forwarded: bool,
}

/// What is known of a request beside its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// The trace that the request belongs to.
    pub trace: Option<Arc<TraceContext>>,
    /// Its way through a fleet, if its session has an owner there.
    pub hop: Option<Arc<ReplicaHop>>,
}
