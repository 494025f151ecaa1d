//! The cancellation of a call by an operator.

use crate::progress::ids::CallId;

/// An operator's request to end a call, for its client and at its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorCancel {
    /// The call to end.
    pub call: CallId,
    /// The origin of the operator's request, as one word without spaces: `local`, or an address.
    pub by: Box<str>,
    /// The operator's reason on one line; empty if the operator gave none.
    pub reason: Box<str>,
}

/// The result of an operator's cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelResult {
    /// The client gets an error, and the server the cancellation.
    Cancelled,
    /// The call has already been answered, or has ended in another way.
    Over,
    /// The call has become a task of the server, and only its client can cancel the task.
    IsTask,
    /// The call is only observed (`mode = "observe"`), so Milepost neither changes nor adds messages.
    Observed,
    /// The call is `initialize`, which must not be cancelled (MCP 2025-06-18, Cancellation).
    Begins,
}

impl OperatorCancel {
    /// Returns the text for the client and the server.
    pub(crate) fn words(&self) -> String {
        match &*self.reason {
            "" => "cancelled by an operator".to_owned(),
            reason => format!("cancelled by an operator: {reason}"),
        }
    }
}
