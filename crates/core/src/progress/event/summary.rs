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
    /// Notifications of the server that were about this call.
    pub received: u64,
    /// Lines of text and logs that could be taken for progress of this call.
    pub read_from_text: u64,
    /// Notifications that the client was sent, heartbeats included.
    pub sent: u64,
    /// Heartbeats among them.
    pub beats: u64,
    /// Heartbeats whose value is an estimate.
    pub estimates: u64,
    /// Notifications among them that were made of text.
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

/// The way in which a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a result.
    Result,
    /// With a result that reports a failure of the tool.
    ToolError,
    /// With an interim result: the client is asked for more, or a task continues.
    Interim,
    /// With an error.
    Error,
    /// The client gave it up.
    Cancelled,
    /// An operator has cancelled it.
    CancelledByOperator,
    /// The route's `call_timeout` passed.
    TimedOut,
    /// The server disconnected or ended first.
    ServerGone,
    /// The proxy stopped first.
    ProxyStopped,
    /// The task that it had turned into ended or ran out.
    TaskEnded,
    /// The end was not read.
    Settled,
    /// The client left before the answer.
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

/// A request that was forwarded.
#[derive(Debug, Clone, Copy)]
pub struct OpenCall<'a> {
    /// The call's name.
    pub call: CallId,
    /// The request's method.
    pub method: &'a str,
    /// The tool, for `tools/call`.
    pub tool: Option<&'a str>,
    /// The text of its id, as its client wrote it.
    pub id: &'a Bytes,
    /// The text of the client's token, if the client sent one.
    pub token: Option<&'a Bytes>,
    /// The client, if it has given its name.
    pub client: Option<&'a Arc<Client>>,
    /// The time when the request was forwarded.
    pub opened: Instant,
}

/// The summary of one call, for operators, at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The call's name.
    pub call: CallId,
    /// The client's own text of the request's id.
    pub id: Bytes,
    /// The request's method.
    pub method: Cow<'static, str>,
    /// The tool, for `tools/call`.
    pub tool: Option<String>,
    /// The client's token text, if the client gave a token and receives progress here.
    pub token: Option<Bytes>,
    /// The call is a `tools/call` without a token: its client may get no progress.
    pub lacks_token: bool,
    /// The client, if it has given its name.
    pub client: Option<Arc<Client>>,
    /// The negotiated revision, as far as it is known.
    pub revision: Option<Revision>,
    /// The trace context of the request, if the client sent one.
    pub trace: Option<Arc<TraceContext>>,
    /// The way of the request through a fleet, if its session has an owner there.
    pub hop: Option<Arc<ReplicaHop>>,
    /// The time when the request was forwarded.
    pub opened: Instant,
    /// The time when the call ended.
    pub ended: Instant,
    /// The way in which the call ended.
    pub outcome: Outcome,
    /// The operator's cancellation, if it ended the call.
    pub cancellation: Option<Arc<OperatorCancel>>,
    /// The code of the server's error, if the call ended with an error.
    pub error_code: Option<i64>,
    /// The time of the first progress to the client.
    pub first_sent: Option<Instant>,
    /// The longest time without progress to the client.
    pub silence: Duration,
    /// The time when the longest silence began.
    pub silent_from: Instant,
    /// The server reported a value.
    pub has_figure: bool,
    /// The counts.
    pub account: CallStats,
}
