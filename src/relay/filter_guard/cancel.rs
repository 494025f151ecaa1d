//! Operators' cancellations of the filter's calls.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::FilterGuard;
use crate::observe::cancellations::CancelInbox;
use crate::progress::input::Input;
use crate::transport::clock::now;

impl FilterGuard {
    /// Returns the inbox of cancellations, if operators can see the calls of the filter.
    pub fn cancellations(&self) -> Option<&Arc<CancelInbox>> {
        self.emitter.as_ref().and_then(|emitter| emitter.cancellations())
    }

    /// Cancels the calls that operators have asked to cancel. Afterwards the filter has answers for the clients and
    /// messages for the server. Returns false if no operator has asked.
    pub fn cancel_calls(&mut self) -> bool {
        let inbox = self.cancellations().filter(|inbox| inbox.is_filled());
        let requests = inbox.map(|inbox| inbox.take()).unwrap_or_default();
        let has_any = !requests.is_empty();
        for request in requests {
            let result = self.apply(now(), Input::CancelCall(request.asked)).cancel();
            // Ignore the error: the operator may have disconnected.
            let _ = request.answer.send(result);
        }
        has_any
    }

    /// Cancels the calls that operators have asked to cancel. Completes if there were any.
    pub fn poll_cancellations(&mut self, cx: &Context<'_>) -> Poll<()> {
        match self.cancellations() {
            Some(inbox) if inbox.poll_filled(cx).is_ready() => {
                self.cancel_calls();
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }
}
