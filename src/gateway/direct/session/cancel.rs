//! Cancels calls of the session for operators after their response has ended.

use std::sync::Arc;

use super::Session;

impl Session {
    /// Lets operators cancel the calls that the session serves. No task polls the filter of a session, so the
    /// cancellation is done in the operator's request.
    pub(crate) fn take_cancellations(self: &Arc<Self>) {
        let inbox = self.with_filter(|filter| filter.cancellations().cloned());
        if let Some(inbox) = inbox {
            let session = Arc::downgrade(self);
            inbox.set_taker(move || {
                if let Some(session) = session.upgrade() {
                    session.cancel_calls();
                }
            });
        }
    }

    fn cancel_calls(&self) {
        let mut shared = self.lock();
        shared.filter.cancel_calls();
        shared.note();
        while let Some(payload) = shared.filter.poll_to_server() {
            if let Some(control) = &shared.control {
                control.send(&payload);
            }
        }
        // The error for the client is sent on the stream to which the client has reconnected, if any.
        shared.streams.values().for_each(|mailbox| mailbox.wake());
    }
}
