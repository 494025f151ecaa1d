//! Handles the server's messages on the stream of a POST: on this stream, on another stream, or forwarded unchanged.

use bytes::Bytes;

use super::{Exchange, ORIGIN, OWN};
use crate::gateway::direct::event_stream::EventHandler;
use crate::gateway::direct::session::{Delivery, SessionStream};
use crate::progress::input::Input;
use crate::progress::{ArrivedMessage, Disposition, FastPath, Transmit};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::sse::{COMMENT, SseEvent};
use crate::transport::clock::now;
use crate::transport::http::body::Batch;
use crate::transport::mcp_http::event_message::{is_part, is_stray};

/// Which filter has handled a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handled {
    /// This filter.
    Here,
    /// The filter of another stream, which now has the message.
    Elsewhere,
    /// None: the message is forwarded, or this repaired form of it.
    AsItIs(Option<Transmit>),
}

impl Exchange {
    /// Takes a message that need not wait for other messages.
    pub(super) fn judge_fast(&mut self, arrived: ArrivedMessage<'_>) -> FastPath {
        self.is_heard = true;
        let (scope, own) = (&self.scope, self.lease.as_ref());
        let is_elsewhere = |token: &Key| scope.is_beside(own, token);
        self.filter.fast_repair(self.last_read, OWN, arrived, is_elsewhere)
    }

    /// Gives a message to the filter that handles it. A message that no filter handles goes to `out` immediately.
    pub(super) fn handle_message(&mut self, message: &Message, out: &mut Batch) -> Handled {
        let mut handled = self.judge(message, out);
        if let Handled::AsItIs(instead) = &mut handled {
            self.forward(message, instead.take(), out);
        }
        handled
    }

    /// Gives a message to the filter that handles it. The caller forwards a message that no filter handles.
    pub(super) fn judge(&mut self, message: &Message, out: &mut Batch) -> Handled {
        let (own, at) = (self.lease.as_ref(), self.last_read);
        self.scope.mark_beside(own, at, &mut self.filter, ORIGIN, message);
        if is_part(message) {
            self.filter.apply(now(), Input::MarkApart);
        }
        let mut fate = self.filter.server_message(self.last_read, ORIGIN, message);
        if fate == Disposition::NotMine {
            let foreign = |member: &SessionStream| {
                member.session.foreign(member.stream, message, self.modern)
            };
            let repairs = |member: &SessionStream| member.session.repaired(message);
            let repaired = self.member.as_ref().and_then(repairs);
            let known = self.member.as_ref().map(foreign);
            match known {
                Some(Delivery::Moved) => return Handled::Elsewhere,
                Some(Delivery::Passes) => return Handled::AsItIs(repaired),
                Some(Delivery::OutOfPlace(reason)) => {
                    self.filter.apply(now(), Input::OutOfPlace(reason));
                    return Handled::Here;
                }
                Some(Delivery::Unknown) | None => {
                    fate = self.filter.handle_last(self.last_read, ORIGIN, message);
                }
            }
        }
        if fate.refuses_all_of(message) {
            self.forward(message, None, out);
        }
        if self.ends_with_answer {
            // Such a server never ends its response, so the filter is told here that no other answer will come.
            self.end_response();
        }
        if let Some(member) = self.member.as_ref().filter(|_| message.kind() == Kind::Request) {
            member.mailbox.mark_asked();
        }
        if let Some(member) = &self.member
            && concerns_session(message)
        {
            if self.filter.open_calls() == 0 {
                member.session.note_last_delivery(member.stream, message);
            } else {
                member.session.note_delivery(member.stream, message);
            }
        }
        Handled::Here
    }

    /// Forwards an event without a message. An event that clients would read as a message becomes a comment.
    pub(super) fn pass_without_message(&mut self, event: &SseEvent, out: &mut Batch) {
        self.collect(out);
        if is_stray(event) && self.filter.withhold_noise(now(), ORIGIN) {
            self.note(Some(out));
            let revision =
                self.filter.try_with(|filter| filter.calls().handshake().revision()).flatten();
            out.raw(&Bytes::from_static(COMMENT));
            self.event_ids.keep_remaining_fields(event, revision, out);
        } else {
            self.event_ids.note_forwarded(event);
            out.raw(&event.raw);
        }
    }

    /// Forwards a message, or its replacement, after the earlier messages.
    fn forward(&mut self, message: &Message, instead: Option<Transmit>, out: &mut Batch) {
        if self.observing {
            return;
        }
        self.collect(out);
        self.filter.forward_last(now(), OWN, message);
        out.transmit(&instead.unwrap_or_else(|| Transmit::of(message)));
    }
}

/// Whether the session has to be told of a message that arrived on the stream of a request.
fn concerns_session(message: &Message) -> bool {
    match message.kind() {
        Kind::Response | Kind::Opaque | Kind::Batch => true,
        Kind::Notification => message.method().is_some_and(|method| {
            *method == *crate::protocol::mcp::TASK_STATUS
                || *method == *crate::protocol::mcp::CANCELLED
        }),
        _ => false,
    }
}
