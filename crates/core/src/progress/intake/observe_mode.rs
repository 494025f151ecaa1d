//! `mode = "observe"`: every message goes on unchanged, to the stream that it belongs to; the
//! verdicts are computed for the record only. Where some tools have another mode than their route, the
//! messages of observed calls pass through the queue of their stream, beside the others.

use crate::progress::correlate::correlator::only;
use crate::progress::correlate::place::Placement;
use crate::progress::event::Origin;
use crate::progress::filter::Filter;
use crate::progress::gate::stream::{Item, StreamKind};
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, Transmit, TransmitKind, spliced};
use crate::progress::policy::CallPolicy;
use crate::progress::verdict::Reason;
use crate::protocol::jsonrpc::{Kind, Message};

impl Filter {
    /// Forwards a message unchanged, except for names given by Milepost. False if no client can get
    /// the message.
    pub(crate) fn forward_observed(&mut self, origin: Origin, message: &Message) -> bool {
        if !self.topology.is_whole() || self.topology.needs_no_choice() {
            return self.observe(self.gate.session_stream, Transmit::of(message));
        }
        if message.kind() != Kind::Batch && !self.is_split(message) {
            let Ok((stream, payload)) = self.observed_place(origin, message) else { return true };
            return self.observe(stream, transmit(payload));
        }
        let elements = message.elements().map(|element| self.observed_place(origin, &element));
        let placed: Vec<Placement> = elements.collect();
        let first = placed.first().and_then(|one| one.as_ref().ok()).map(|(stream, _)| *stream);
        let together =
            |one: &Placement| one.as_ref().is_ok_and(|(stream, _)| Some(*stream) == first);
        if let Some(stream) = first
            && !self.topology.has_strangers()
            && placed.iter().all(together)
        {
            return self.observe(stream, Transmit::of(message));
        }
        for (stream, payload) in placed.into_iter().flatten() {
            self.observe(stream, transmit(payload));
        }
        true
    }

    /// Adds the client's message to its stream.
    pub(crate) fn observe(&mut self, stream: Option<StreamId>, transmit: Transmit) -> bool {
        self.observe_part(stream, None, transmit)
    }

    /// Adds a whole message to a stream, or a piece of the large message `of`.
    pub(crate) fn observe_part(
        &mut self,
        stream: Option<StreamId>,
        of: Option<u64>,
        transmit: Transmit,
    ) -> bool {
        let open =
            self.open_or_session_stream(stream).and_then(|id| self.gate.streams.get_mut(&id));
        let Some(stream) = open else { return false };
        stream.observed.push(of, transmit);
        true
    }

    /// Adds a message of Milepost's own to a stream. An HTTP request needs its answer in any mode.
    pub(crate) fn enqueue_own(&mut self, stream: StreamId, item: Item) {
        let kind = self.gate.streams.get(&stream).map(|stream| stream.kind);
        let needed = kind == Some(StreamKind::Exchange) || self.topology.has_strangers();
        if self.policy.observes() && self.topology.is_whole() && needed {
            self.observe(Some(stream), item.into_transmit());
            return;
        }
        self.enqueue(Some(stream), item);
    }

    /// Whether a message that is about no known call may be another client's.
    pub(crate) fn is_private(&self) -> bool {
        self.topology.has_strangers() || !self.correlator.elsewhere.is_empty()
    }

    /// Whether a message that is about no known call passes as it came, beside others that are changed.
    pub(crate) fn observes_the_rest(&self) -> bool {
        self.policy.call.observes() && !self.policy.observes()
    }

    /// Whether a call is observed beside others that are changed.
    pub(crate) fn is_observed(&self, call: CallId) -> bool {
        self.correlator.ledger.get(call).is_some_and(|call| call.is_observed())
    }

    /// The settings for an answer that fits no open request: those of the only request that it may be meant
    /// for, else those of the route.
    pub(crate) fn settings_of_orphan(&self, origin: Origin) -> &CallPolicy {
        let sole = || only(self.correlator.active(|call| call.task.is_none())).ok();
        let call = self.sole_call_on(origin).or_else(sole);
        let call = call.and_then(|id| self.correlator.ledger.get(id));
        call.map_or(&self.policy.call, |call| call.settings())
    }

    /// Whether an event gets the name that clients read, if the server gave it another name.
    pub fn repairs_event_name(&self, origin: Origin) -> bool {
        let settings = self.settings_of_orphan(origin);
        settings.answers.event_name && !settings.observes()
    }

    /// Whether an event whose data is no message is withheld.
    pub fn withholds_noise(&self, origin: Origin) -> bool {
        let settings = self.settings_of_orphan(origin);
        settings.answers.noise && !settings.observes()
    }

    fn observed_place(&mut self, origin: Origin, message: &Message) -> Placement {
        match message.kind() {
            Kind::Response => self.observed_answer(origin, message),
            Kind::Notification => match self.observed_progress(origin, message) {
                Some(placed) => placed,
                None => self.destination_of(origin, message),
            },
            Kind::Request => self.destination_of(origin, message),
            Kind::Noise => Err(Reason::Noise),
            _ if self.topology.has_strangers() => Err(Reason::Unknown),
            _ => self.destination_of(origin, message),
        }
    }

    fn observed_answer(&self, origin: Origin, message: &Message) -> Placement {
        let answered = message.id_key().and_then(|key| self.call_of_answer_on(origin, &key));
        let Some(id) = answered else {
            // Where clients share the server it could be another one's.
            return if self.topology.has_strangers() {
                Err(Reason::OrphanAnswer)
            } else {
                self.fallback_stream(origin).map(|stream| (stream, Payload::of(message)))
            };
        };
        let stream = self.correlator.ledger.get(id).map(|call| call.stream);
        let names = if self.topology.has_strangers() {
            self.restored_names(id, message)
        } else {
            Vec::new()
        };
        Ok((stream, spliced(message, names)))
    }

    /// The stream for progress; `None` if the message is no progress, or its call is unknown.
    fn observed_progress(&mut self, origin: Origin, message: &Message) -> Option<Placement> {
        if !self.claims_progress(message) {
            return None;
        }
        let (policies, method) = (self.policy.clone(), message.method()?);
        let mut why = Reason::Unreadable;
        for (_, report) in policies.reports(&method, message) {
            match self.attribute(&report.about, origin) {
                Ok((id, _)) => {
                    let call = self.correlator.ledger.get(id)?;
                    let payload = self.with_client_names(call, message, &report.about);
                    return Some(Ok((Some(call.stream), payload)));
                }
                Err(reason) => why = reason,
            }
        }
        self.topology.has_strangers().then_some(Err(why))
    }
}

/// A whole message with the names that its client gave.
fn transmit(payload: Payload) -> Transmit {
    let message = Message::parse(payload.to_bytes());
    Transmit::whole(TransmitKind::of(&message), payload)
}
