//! Remembers answers that were just given, because the client may have given the call up while its answer was on the
//! way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::progress::client_habits::Habit;
use crate::progress::detached::kept_room::KeptRoom;
use crate::progress::detached::late::calls::{GivenCall, LateCall, LateCalls};
use crate::progress::detached::late::habits::{HabitKey, millis};
use crate::progress::detached::store::Work;
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::protocol::jsonrpc::Message;

/// Limit of the time for which a given answer is remembered. If a client's timer expires while the answer is on the
/// way, the client's cancellation arrives after the answer.
const CROSSING_MAX: Duration = Duration::from_secs(5);

/// The lowest age of a call at which a client's own clock can have run out.
const CLOCK_MIN: Duration = Duration::from_secs(1);

impl LateCalls {
    /// Remembers for a moment the answer that a call gets, because its client may just have given the call up.
    pub(crate) fn note_given(
        &mut self,
        gate: &Gate,
        now: Instant,
        id: CallId,
        message: &Message,
        kept_room: &mut KeptRoom,
    ) {
        let Some(call) = gate.calls.open.get(id) else { return };
        if call.signature.is_none() {
            return;
        }
        let late = self.late_of(gate, call.settings(), call.tool.as_deref());
        let Some(late) = late else { return };
        let client = HabitKey::of(gate, call);
        self.note_habit(gate, &client, Habit::Lived(millis(call.waited_at(now))));
        let is_young = now < call.opened + CLOCK_MIN;
        let bytes = message.raw().len();
        let has_room = self.bytes() + bytes <= late.bytes;
        let is_kept = !is_young && has_room && kept_room.take(bytes);
        let Some(call) = gate.calls.open.get(id) else { return };
        let Some(signature) = &call.signature else { return };
        let answer = is_kept.then(|| Message::parse(Bytes::copy_from_slice(message.raw())));
        let is_joined = call.joined.is_some();
        // A call that has joined work is remembered even without its answer, because the server has never seen its id
        // and must not get its cancellation.
        if answer.is_none() && !is_joined {
            return;
        }
        let details = LateCall {
            token: call.token.as_ref().map(|token| token.server.clone()),
            paired: None,
            // The work has been answered, so no more reports on it will come.
            learned_names: Vec::new(),
            principal: gate.calls.streams.late_principal(call.stream),
            signature: (**signature).clone(),
            policy: Arc::clone(&call.policy),
            attempts: call.attempts,
            client,
            is_told: false,
        };
        let until = now + CROSSING_MAX;
        let work = Work::new(call.id.server.clone(), call.opened, until, details);
        let client_id = call.id.client.clone();
        self.remember(GivenCall { client_id, work, answer, is_joined });
    }
}
