//! Requests of the server that the client has to answer before a call goes on: elicitation, sampling, roots. While such a
//! question is open, the clocks of `call_timeout` and `heartbeat.max` stand still, because a person is asked.

use std::time::Instant;

use crate::progress::event::Origin;
use crate::progress::filter::Filter;
use crate::progress::ids::{CallId, StreamId};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::{json, mcp};

/// Members that name the request which a request of the server is about. The specification has none; some servers
/// write the names that the SDKs use inside.
const RELATED: [&str; 3] = ["relatedRequestId", "related_request_id", "requestId"];

impl Filter {
    /// Takes a message that the server has sent on another stream, where another filter forwards it: a log, or a
    /// question that may be about a call of this filter.
    pub(crate) fn hear(&mut self, now: Instant, origin: Origin, message: &Message) {
        match message.kind() {
            Kind::Request => self.note_question(now, origin, message, None),
            _ if message.method().as_deref() == Some(mcp::CANCELLED) => {
                self.note_withdrawal(now, message);
            }
            _ => self.text_from_log(now, origin, message),
        }
    }

    /// Stops the clocks of the calls that a request of the server may be about. `only_on`: the stream of its client,
    /// where different clients share the server.
    pub(crate) fn note_question(
        &mut self,
        now: Instant,
        origin: Origin,
        message: &Message,
        only_on: Option<StreamId>,
    ) {
        let Some(question) = message.id_key() else { return };
        // No person answers a ping.
        if message.method().as_deref() == Some(mcp::PING) {
            return;
        }
        for id in self.calls_of_question(origin, message, only_on) {
            let Some(call) = self.correlator.ledger.get_mut(id) else { continue };
            let stopped = call.clock.get_or_insert_default().stop(question.clone(), now);
            self.gate.asked.insert(id);
            if let Some(most) = stopped {
                self.correlator.ledger.put_off(id, |expires| expires + most);
            }
            self.schedule(id);
        }
    }

    /// Notes that a question of the server is answered, or withdrawn. The clocks of its calls go on.
    pub(crate) fn end_question(&mut self, now: Instant, question: &Key) {
        let asked: Vec<CallId> = self.gate.asked.iter().copied().collect();
        for id in asked {
            let call = self.correlator.ledger.get_mut(id);
            let clock = call.and_then(|call| call.clock.as_mut());
            let Some(rest) = clock.and_then(|clock| clock.go_on(question, now)) else { continue };
            self.gate.asked.remove(&id);
            self.correlator.ledger.put_off(id, |expires| expires - rest);
            self.schedule(id);
        }
    }

    /// Notes that the server has cancelled a request of its own.
    pub(crate) fn note_withdrawal(&mut self, now: Instant, cancelled: &Message) {
        let params = cancelled.params().unwrap_or_default();
        let question = json::member(&params, "requestId").and_then(|id| Key::read(&id));
        if let Some(question) = question {
            self.end_question(now, &question);
        }
    }

    /// The calls that a request of the server may be about: those that it names, else those of its stream, else all.
    fn calls_of_question(
        &self,
        origin: Origin,
        message: &Message,
        only_on: Option<StreamId>,
    ) -> Vec<CallId> {
        let ledger = &self.correlator.ledger;
        let params = message.params().unwrap_or_default();
        let meta = json::member(&params, "_meta").unwrap_or_default();
        let related = |object| RELATED.iter().find_map(|name| json::member(object, name));
        let named = related(&meta).or_else(|| related(&params)).and_then(|id| Key::read(&id));
        if let Some(named) = named {
            return ledger.by_id(&named).into_iter().collect();
        }
        let on_stream = match (only_on, origin) {
            (Some(on), _) => ledger.on_stream(on),
            (None, Origin::Stream(on)) if ledger.paired_with(on).is_empty() => ledger.on_stream(on),
            (None, Origin::Stream(on)) => ledger.paired_with(on),
            (None, Origin::Shared) => &[],
        };
        if only_on.is_some() || !on_stream.is_empty() {
            return on_stream.to_vec();
        }
        let waits = |call: CallId| {
            ledger.get(call).is_some_and(|call| !call.shadow && !call.is_subscription())
        };
        ledger.iter().map(|(id, _)| id).filter(|id| waits(*id)).collect()
    }
}
