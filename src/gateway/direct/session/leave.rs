//! Ends the stream of a request; the session continues its calls.

use std::task::Context;

use super::SessionStream;
use crate::gateway::direct::control::ControlSender;
use crate::progress::input::Input;
use crate::relay::active_tokens::TokenLease;
use crate::relay::filter_guard::FilterGuard;
use crate::transport::clock::now;

impl SessionStream {
    /// Closes the stream of a request, whose remaining messages the session will send. `cancels`: the requests are
    /// cancelled. `lease`: the tokens of unanswered requests. `control`: sends messages to the server.
    pub(crate) fn leave(
        &self,
        own: &mut FilterGuard,
        cancels: bool,
        lease: Option<TokenLease>,
        control: Option<ControlSender>,
    ) {
        let mut shared = self.session.lock();
        let at = now();
        let stream = self.stream;
        if !cancels {
            shared.control =
                control.filter(|_| own.open_calls() > 0).or_else(|| shared.control.take());
            shared.filter.take_over(at, own, stream);
        }
        shared.leases.extend(lease);
        shared.filter.apply(at, Input::CloseStream(stream, cancels));
        // Cancellations are not sent, because the end of the response has told the server the same.
        while shared.filter.poll_to_server().is_some() {}
        shared.note();
        shared.streams.remove(&stream);
        shared.spoken = shared.used;
    }

    /// Notes that the requests of the stream get no answer, because the server refused them.
    pub(crate) fn refused(&self) {
        let stream = self.stream;
        self.session.lock().filter.apply(now(), Input::SettleStream(stream));
    }

    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.mailbox.register(cx);
    }
}
