//! Cancels a call of the table: the request goes to the filter that serves the call.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Table;
use crate::observe::cancellations::{CancelInbox, CancelRequest};
use crate::progress::clients::is_unprintable;
use crate::progress::{CallId, CancelResult, OperatorCancel};

/// Maximum number of characters of an operator's reason. The rest is left out.
const REASON_MAX: usize = 200;

/// Deadline for the filter of a call to take the cancellation from its inbox.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// The reason why a call is not cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CancelError {
    /// The table does not know the number.
    #[error(
        "no call has the number {0} here, or no longer; another replica of a fleet numbers its own calls"
    )]
    Unknown(u64),
    /// The call has ended already.
    #[error("call {0} is over already: {1}")]
    Over(u64, &'static str),
    /// The call is just ending, or its answer is being written.
    #[error("call {0} has just ended")]
    Ends(u64),
    /// The call has become a task of the server.
    #[error(
        "call {0} is a task of the server now, which only its client can cancel (tasks/cancel)"
    )]
    IsTask(u64),
    /// The route only observes.
    #[error(
        "call {0} belongs to a route that only observes (mode = \"observe\"): Milepost answers none of its calls"
    )]
    Observed(u64),
    /// The call is `initialize`, which cannot be cancelled.
    #[error("call {0} is `initialize`, which the specification does not allow to be cancelled")]
    Begins(u64),
    /// The filter has not taken the cancellation before the deadline.
    #[error("call {0} is not cancelled yet: its connection does not take the cancellation now")]
    Busy(u64),
}

impl Table {
    /// Cancels an open call, and waits until it is cancelled. `by`: in one word, how the operator's request came.
    ///
    /// # Errors
    /// If the call is not open, or cannot be cancelled.
    pub async fn cancel(&self, number: u64, by: &str, reason: &str) -> Result<(), CancelError> {
        let (filter, call) = self.filter_of(number)?;
        let filter = filter.upgrade().ok_or(CancelError::Ends(number))?;
        let (by, reason) = (by.into(), one_line(reason).into());
        let asked = Arc::new(OperatorCancel { call, by, reason });
        let (answer, result) = oneshot::channel();
        if !filter.put(CancelRequest { asked, answer }) {
            return Err(CancelError::Busy(number));
        }
        // Drop the reference: when the filter ends meanwhile, its inbox and the waiting request must be dropped too.
        drop(filter);
        match timeout(TAKEN_WITHIN, result).await {
            Err(_) => Err(CancelError::Busy(number)),
            Ok(Err(_) | Ok(CancelResult::Over)) => Err(CancelError::Ends(number)),
            Ok(Ok(CancelResult::IsTask)) => Err(CancelError::IsTask(number)),
            Ok(Ok(CancelResult::Observed)) => Err(CancelError::Observed(number)),
            Ok(Ok(CancelResult::Begins)) => Err(CancelError::Begins(number)),
            Ok(Ok(CancelResult::Cancelled)) => Ok(()),
        }
    }

    /// Returns the inbox of the filter that serves an open call, and the filter's number for the call.
    fn filter_of(&self, number: u64) -> Result<(Weak<CancelInbox>, CallId), CancelError> {
        let entry = self.all().into_iter().find(|entry| entry.number == number);
        let entry = entry.ok_or(CancelError::Unknown(number))?;
        let state = entry.state();
        match (state.ended, &state.served_by) {
            (Some((_, ended)), _) => Err(CancelError::Over(number, ended.name())),
            (None, Some((filter, call))) => Ok((Weak::clone(filter), *call)),
            (None, None) => Err(CancelError::Ends(number)),
        }
    }
}

/// Returns a reason on one line, without control characters.
fn one_line(reason: &str) -> String {
    let words: Vec<&str> = reason.split_whitespace().collect();
    words.join(" ").chars().filter(|sign| !is_unprintable(*sign)).take(REASON_MAX).collect()
}
