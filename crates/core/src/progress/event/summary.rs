//! The events of a call for operators: one when the call opens, one when it ends.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::progress::clients::Client;
use crate::progress::event::operator_cancel::OperatorCancel;
use crate::progress::event::request_origin::ReplicaHop;
use crate::progress::ids::CallId;
use crate::progress::kind_counts::KindCounts;
use crate::progress::verdict::{Reason, Repair, Repairs};
use crate::protocol::mcp::Revision;
use crate::protocol::trace_context::TraceContext;

/// The counts of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallStats {
    /// Number of the server's notifications that were about this call.
    pub received: u64,
    /// Number of text lines and log messages that could be read as progress of this call.
    pub read_from_text: u64,
    /// Number of notifications sent to the client, including heartbeats.
    pub sent: u64,
    /// Number of heartbeats sent to the client.
    pub beats: u64,
    /// Number of heartbeats whose value was an estimate.
    pub estimates: u64,
    /// Number of notifications sent to the client that were made from text.
    pub sent_from_text: u64,
    /// The number of times that each repair was made.
    pub repaired: KindCounts<Repair>,
    /// The number of notifications withheld for each reason.
    pub withheld: KindCounts<Reason>,
}

impl CallStats {
    pub(crate) fn repaired(&mut self, repairs: Repairs) {
        for repair in repairs.iter() {
            self.repaired.add(repair, 1);
        }
    }

    pub(crate) fn withheld(&mut self, reason: Reason) {
        self.withheld.add(reason, 1);
    }

    /// Adds the counts of the same call in another filter.
    pub(crate) fn join(&mut self, other: &Self) {
        self.received += other.received;
        self.read_from_text += other.read_from_text;
        self.sent += other.sent;
        self.beats += other.beats;
        self.estimates += other.estimates;
        self.sent_from_text += other.sent_from_text;
        other.repaired.iter().for_each(|(repair, times)| self.repaired.add(repair, times));
        other.withheld.iter().for_each(|(reason, times)| self.withheld.add(reason, times));
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered with a result.
    Result,
    /// The server answered with a result that reports a failure of the tool.
    ToolError,
    /// The server answered with an interim result: the client is asked for more, or a task continues.
    Interim,
    /// The server answered with an error.
    Error,
    /// The client gave the call up.
    Cancelled,
    /// An operator cancelled the call.
    CancelledByOperator,
    /// The route's `call_timeout` expired.
    TimedOut,
    /// The server disconnected or ended before its answer.
    ServerGone,
    /// The proxy stopped first.
    ProxyStopped,
    /// The task that it had turned into ended or ran out.
    TaskEnded,
    /// The call was ended without reading its answer.
    Settled,
    /// The client disconnected before the answer.
    ClientLeft,
}

impl Outcome {
    /// Every outcome, in the order of the enum.
    pub const ALL: [Self; 12] = [
        Self::Result,
        Self::ToolError,
        Self::Interim,
        Self::Error,
        Self::Cancelled,
        Self::CancelledByOperator,
        Self::TimedOut,
        Self::ServerGone,
        Self::ProxyStopped,
        Self::TaskEnded,
        Self::Settled,
        Self::ClientLeft,
    ];

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::ToolError => "tool error",
            Self::Interim => "interim result",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::CancelledByOperator => "cancelled by operator",
            Self::TimedOut => "timed out",
            Self::ServerGone => "server gone",
            Self::ProxyStopped => "milepost stopped",
            Self::TaskEnded => "task ended",
            Self::Settled => "settled",
            Self::ClientLeft => "client left",
        }
    }

    /// Whether the server has answered.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, Self::Result | Self::ToolError | Self::Interim | Self::Error | Self::Settled)
    }
}

/// A request that was forwarded and is still open.
#[derive(Debug, Clone, Copy)]
pub struct OpenCall<'a> {
    /// The id of the call in the filter.
    pub call: CallId,
    /// The request's method.
    pub method: &'a str,
    /// The name of the tool, for `tools/call`.
    pub tool: Option<&'a str>,
    /// The text of the request id, as the client wrote it.
    pub id: &'a Bytes,
    /// The text of the client's token, if the client sent one.
    pub token: Option<&'a Bytes>,
    /// The client, if it is known.
    pub client: Option<&'a Arc<Client>>,
    /// The time when the request was forwarded.
    pub opened: Instant,
}

/// The summary of one call for operators, written when the call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The id of the call in the filter.
    pub call: CallId,
    /// The text of the request id, as the client wrote it.
    pub id: Bytes,
    /// The request's method.
    pub method: Cow<'static, str>,
    /// The name of the tool, for `tools/call`.
    pub tool: Option<String>,
    /// The text of the client's token, if the client gave a token and receives progress through this filter.
    pub token: Option<Bytes>,
    /// Whether the call is a `tools/call` without a token, so that no progress may be sent to its client.
    pub lacks_token: bool,
    /// The client, if it is known.
    pub client: Option<Arc<Client>>,
    /// The negotiated protocol revision, if known.
    pub revision: Option<Revision>,
    /// The trace context of the request, if the client sent one.
    pub trace: Option<Arc<TraceContext>>,
    /// The path of the request through a fleet, if a replica of the fleet owns its session.
    pub hop: Option<Arc<ReplicaHop>>,
    /// The time when the request was forwarded.
    pub opened: Instant,
    /// The time when the call ended.
    pub ended: Instant,
    /// How the call ended.
    pub outcome: Outcome,
    /// The operator's cancellation, if it ended the call.
    pub cancellation: Option<Arc<OperatorCancel>>,
    /// The code of the server's error, if the call ended with an error.
    pub error_code: Option<i64>,
    /// The time when the first progress was sent to the client.
    pub first_sent: Option<Instant>,
    /// The longest period without progress to the client.
    pub silence: Duration,
    /// The time when the longest silence began.
    pub silent_from: Instant,
    /// Whether the server reported a progress value.
    pub has_figure: bool,
    /// The counts of the call.
    pub account: CallStats,
}
