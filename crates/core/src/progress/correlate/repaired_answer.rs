//! An answer after its repairs.

use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::mended_body::mended_body;
use crate::progress::event::Origin;
use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::{Payload, Transmit, spliced};
use crate::progress::streams::stream::Guard;
use crate::progress::verdict::{Reason, Repairs, Verdict};
use crate::protocol::jsonrpc::{Key, Kind, Message};

/// An answer as its client gets it, or the reason why not.
pub(crate) struct RepairedAnswer {
    pub(crate) payload: Option<Payload>,
    /// The client's id of its request.
    pub(crate) id: Option<Key>,
    pub(crate) guard: Option<Guard>,
    pub(crate) verdict: Verdict,
    pub(crate) call: Option<CallId>,
    pub(crate) stream: Option<StreamId>,
}

impl RepairedAnswer {
    pub(crate) fn withheld(reason: Reason) -> Self {
        let verdict = Verdict::Withheld(reason);
        Self { payload: None, id: None, guard: None, verdict, call: None, stream: None }
    }

    /// Forwards an answer to no known request to the stream for such messages.
    pub(crate) fn fallback_stream(
        message: &Message,
        place: Result<Option<StreamId>, Reason>,
    ) -> Self {
        let Ok(stream) = place else { return Self::withheld(Reason::OrphanAnswer) };
        let (payload, id) = (Some(Payload::of(message)), message.id_key());
        Self { payload, id, guard: None, verdict: Verdict::Forwarded, call: None, stream }
    }
}

impl Correlator {
    /// An answer to an open request as its client needs it, if the answer needs a repair; the request stays open.
    pub fn repaired_answer(&self, message: &Message) -> Option<Transmit> {
        let legible = self.legible(message);
        let message = legible.as_ref().unwrap_or(message);
        let key = message.id_key().filter(|_| message.kind() == Kind::Response)?;
        let id = self.ledger.call_of_answer(&key)?;
        let call = self.ledger.get(id).filter(|call| !call.is_observed())?;
        let switches = call.answer_repairs();
        let is_exact = message.id().is_some_and(|id| call.id.is_read_in(&id));
        let differs = !is_exact && switches.response_id;
        let mut splices = if differs { self.restored_names(id, message) } else { Vec::new() };
        splices.extend(mended_body(message, call, switches, &mut Repairs::default()));
        let payload = |splices| spliced(message, splices);
        let is_changed = !splices.is_empty() || legible.is_some();
        is_changed.then(|| Transmit { payload: payload(splices), ..Transmit::of(message) })
    }
    /// A message with the characters and the envelope that every client reads, if the message has others. It need not
    /// be the answer to an open request.
    pub fn legible(&self, message: &Message) -> Option<Message> {
        // An HTTP response needs a body. So the answer to a cancelled request goes out as well, and
        // has to be readable for the client.
        let mut done = Repairs::default();
        let readable = self.readable(Origin::Shared, message, &mut done);
        let text = readable.as_ref().unwrap_or(message);
        self.well_formed(Origin::Shared, text, &mut done).or(readable)
    }
}
