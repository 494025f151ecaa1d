//! Moves calls whose stream closes, or whose client reconnects, to another stream or another filter.

use std::time::Instant;

use crate::progress::correlate::call::{Resumption, SendHistory, ServerReports};
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::event::FilterEvent;
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, StreamId};
use crate::protocol::jsonrpc::{Kind, Message};

impl Gate {
    /// Ends the calls of a message that the server has refused.
    pub fn withdraw(&mut self, now: Instant, message: &Message) {
        let requests = message.id_key().into_iter().chain(
            (message.kind() == Kind::Batch)
                .then(|| message.elements().filter_map(|one| one.id_key()))
                .into_iter()
                .flatten(),
        );
        for id in requests {
            if let Some(call) = self.calls.open.ledger.by_id(&id) {
                self.end_call(now, call, Tombstone::Answered, crate::progress::Outcome::Error);
            }
        }
    }

    /// Ends every request of a stream, for whatever reason. Tasks continue.
    pub fn settle_stream(&mut self, now: Instant, stream: StreamId) {
        for call in self.calls.open.on_stream(stream).to_vec() {
            if self.calls.open.get(call).is_some_and(|call| call.task.is_some()) {
                continue;
            }
            self.end_call(now, call, Tombstone::Answered, crate::progress::Outcome::Settled);
        }
    }

    /// Hands the calls of a closing stream over to `session`, which then sends their progress. `on`: the stream in
    /// `session`, if known. If the client has not left for good
    /// ([`Filter::close_clients`](crate::progress::Filter::close_clients)), `session` also writes the records of the
    /// calls.
    pub fn hand_over(&mut self, session: &mut Self, on: Option<StreamId>) {
        let mut taken = Vec::new();
        for (_, call) in self.calls.open.iter() {
            let (known, ledger) = (&session.calls.open, &session.calls.open.ledger);
            let here = |calls: &[CallId]| {
                let is_here = |id: &CallId| {
                    let call = known.get(*id);
                    call.is_some_and(|call| {
                        on.is_none_or(|on| {
                            call.stream == on || call.resumption == Resumption::Left(on)
                        })
                    })
                };
                calls.iter().copied().find(is_here)
            };
            let id = here(ledger.all_by_id(&call.id.server));
            let token = call.token.as_ref();
            // A call that has become a task is no longer known by its id, but its token stays valid.
            let task = token.and_then(|token| here(ledger.all_by_token(&token.server)));
            let Some(heir) = id.or(task).and_then(|id| session.calls.open.get_mut(id)) else {
                continue;
            };
            if on.is_some_and(|on| heir.resumption == Resumption::Left(on)) {
                // The client has already reconnected, so the meter in `session` has the last value that the client got.
                heir.resumption = Resumption::None;
                heir.is_recorded = false;
                heir.opened = call.opened;
                heir.origin.clone_from(&call.origin);
                heir.account.join(&call.account);
                taken.extend(id.or(task));
                continue;
            }
            heir.shadow = false;
            // If the client has disconnected for good, the closing filter writes the record.
            heir.is_recorded = self.client_left && call.task.is_none();
            let is_recorded = heir.is_recorded;
            heir.opened = call.opened;
            heir.origin.clone_from(&call.origin);
            heir.sent = SendHistory {
                last_heartbeat: heir.sent.last_heartbeat.take(),
                ..call.sent.clone()
            };
            heir.reports = ServerReports {
                has_figure: heir.reports.has_figure || call.reports.has_figure,
                bare_results: heir.reports.bare_results,
                ..call.reports.clone()
            };
            heir.account = call.account.clone();
            heir.clock.clone_from(&call.clock);
            let sent = heir.meter.emitted();
            heir.meter.clone_from(&call.meter);
            // The value must only rise, and `session` may have raised it for another request with the same token.
            heir.meter.raise_to(sent);
            let is_asked = call.asked_since().is_some();
            session.asked.extend(id.or(task).filter(|_| is_asked));
            taken.extend(id.or(task).filter(|_| !is_recorded));
        }
        session.calls.events.extend(taken.into_iter().map(FilterEvent::TakenOver));
        if !self.client_left {
            self.calls.open.forget_records();
        }
    }

    /// Notes that the answer to a call was written to an old stream, while the call's client has reconnected on another
    /// stream.
    pub(crate) fn note_answer_where_left(&mut self, id: CallId) {
        if let Some(call) = self.calls.open.get_mut(id) {
            // A front proxy may keep the connection of a disconnected client open, so the server answers there. The
            // client may not have read that answer.
            call.resumption = Resumption::AnsweredThere;
        }
        self.schedule(id);
    }

    /// Ends the calls of a closing stream whose answers may have reached their clients on another stream.
    pub(crate) fn settle_answered_where_left(&mut self, now: Instant, stream: StreamId) {
        for id in self.calls.open.on_stream(stream).to_vec() {
            if self
                .calls
                .open
                .get(id)
                .is_some_and(|call| call.resumption == Resumption::AnsweredThere)
            {
                self.end_call(now, id, Tombstone::Answered, crate::progress::Outcome::Settled);
            }
        }
    }

    /// Moves the calls of the stream `old` to the stream `on`, because their client has reconnected there. `sent`: the
    /// last progress value that the client has received, if it has one request; the server repeats the values after it.
    pub fn resume_stream(&mut self, now: Instant, old: StreamId, on: StreamId, sent: Option<f64>) {
        for id in self.calls.open.on_stream(old).to_vec() {
            self.calls.open.move_to(id, on);
            if let Some(call) = self.calls.open.get_mut(id) {
                if let (Some((at, order)), Some(stream)) =
                    (call.wake.take(), self.calls.streams.get_mut(&old))
                {
                    stream.wakes.remove(&(at, order, id));
                }
                // The filter of the request writes the record, unless it hands the call over.
                call.is_recorded |= std::mem::take(&mut call.shadow);
                // A client may reconnect twice. Then the filter of the first stream that it left still has the record.
                if call.resumption == Resumption::None {
                    call.resumption = Resumption::Left(old);
                }
                call.sent.at = Some(now);
                // A proxy between Milepost and the client may notice a disconnect late, so progress may have been
                // written that the client never read. If the server repeats it, the values must not count as falling.
                call.meter.go_back_to(sent);
            }
            self.schedule(id);
        }
    }
}
