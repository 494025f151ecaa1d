//! An answer after its repairs.

use crate::progress::ids::{CallId, StreamId};
use crate::progress::payload::Payload;
use crate::progress::streams::stream::Guard;
use crate::progress::verdict::{Reason, Verdict};
use crate::protocol::jsonrpc::{Key, Message};

/// An answer in the form for its client, or the reason for withholding it.
pub(crate) struct RepairedAnswer {
    pub(crate) payload: Option<Payload>,
    /// The id of the answered request, as its client knows it.
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

    /// Forwards an answer to an unknown request on the stream for such answers.
    pub(crate) fn fallback_stream(
        message: &Message,
        place: Result<Option<StreamId>, Reason>,
    ) -> Self {
        let Ok(stream) = place else { return Self::withheld(Reason::OrphanAnswer) };
        let (payload, id) = (Some(Payload::of(message)), message.id_key());
        Self { payload, id, guard: None, verdict: Verdict::Forwarded, call: None, stream }
    }
}
