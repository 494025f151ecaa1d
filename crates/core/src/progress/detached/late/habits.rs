//! Learns the habits of clients that give calls up, and answers questions about them.

use std::time::{Duration, Instant};

use crate::progress::client_habits::{ClientHabits, Habit};
use crate::progress::correlate::call::Call;
use crate::progress::correlate::signature::Signature;
use crate::progress::detached::late::calls::{LateCalls, LateWork};
use crate::progress::event::FilterEvent;
use crate::progress::event::late::{LateEvent, LateNews};
use crate::progress::gate::state::Gate;
use crate::progress::ids::{CallId, Principal};
use crate::progress::policy::late::RepeatedAfter;
use crate::protocol::mcp::Revision;

/// The age from which on the repetition of an open call may show that its client has given the call up. Used if no
/// clock of the client is known, because no known client gives calls up earlier.
const REPEATED_AGE_MIN: Duration = Duration::from_secs(5);

/// Client names that SDKs choose, so that clients of many applications have the same name. For these clients, other
/// known properties become part of the name under which the client is remembered.
const SDK_NAMES: [&str; 2] = ["mcp", "fastmcp"];

/// The name under which the habits of a client are remembered. `None` for a client without a name, whose habits are
/// remembered only as long as its connection lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HabitKey(Option<Box<str>>);

impl HabitKey {
    /// Returns the name for the client of a call.
    pub(crate) fn of(gate: &Gate, call: &Call) -> Self {
        let handshake = &gate.calls.handshake;
        let Some(client) = call.client.as_deref().or(handshake.client.as_deref()) else {
            return Self(None);
        };
        if !SDK_NAMES.contains(&client.name()) {
            return Self(Some(client.to_string().into()));
        }
        let is_modern = call.revision.or(handshake.revision) >= Some(Revision::V2026_07_28);
        let first = if is_modern { "server/discover" } else { "initialize" };
        let token = if call.token.is_some() { "token" } else { "no token" };
        Self(Some(format!("{client} ({first}, {token})").into()))
    }
}

/// Returns a time in milliseconds.
pub(super) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

impl LateCalls {
    /// Learns from what a client did.
    pub(super) fn note_habit(&mut self, gate: &Gate, client: &HabitKey, habit: Habit) {
        match &client.0 {
            Some(name) => gate.calls.policy.learned.clients.note(name, habit),
            None => {
                self.nameless.note(habit);
            }
        }
    }

    /// Returns what is known about a client.
    pub(super) fn habits(&self, gate: &Gate, client: &HabitKey) -> ClientHabits {
        match &client.0 {
            Some(name) => gate.calls.policy.learned.clients.of(name),
            None => self.nameless,
        }
    }

    /// Notes that no call came for some work. This counts if the work's client was told to call again.
    pub(super) fn note_told_in_vain(&mut self, gate: &Gate, work: &LateWork) {
        if work.details.is_told {
            self.note_habit(gate, &work.details.client, Habit::ToldInVain);
        }
    }

    /// Notes that the clients of a connection have disconnected, including those that were told to call again and did
    /// not.
    pub(super) fn note_clients_left(&mut self, gate: &Gate) {
        let mut told: Vec<HabitKey> = Vec::new();
        for work in self.works.iter_mut() {
            if std::mem::take(&mut work.details.is_told) && !told.contains(&work.details.client) {
                told.push(work.details.client.clone());
            }
        }
        for client in told {
            self.note_habit(gate, &client, Habit::ToldInVain);
        }
    }

    /// Returns the age from which on an open call counts as given up without a cancellation if the same call comes
    /// again. `None` if an open call never counts as given up.
    pub(super) fn repeated_after(&self, gate: &Gate, call: &Call) -> Option<Duration> {
        match call.settings().late.repeated_after {
            RepeatedAfter::Off => None,
            RepeatedAfter::Age(age) => Some(age),
            RepeatedAfter::Auto => {
                let habits = self.habits(gate, &HabitKey::of(gate, call));
                let age = habits.gives_up_after().unwrap_or(REPEATED_AGE_MIN);
                habits.leaves_calls_open().then_some(age)
            }
        }
    }

    /// Whether the client of an open call is told to call again. If it is not, an event reports that.
    pub(super) fn may_tell(&mut self, gate: &mut Gate, now: Instant, id: CallId) -> bool {
        let Some(call) = gate.calls.open.get(id) else { return false };
        let habits = self.habits(gate, &HabitKey::of(gate, call));
        if habits.is_told() {
            return true;
        }
        let news = LateNews {
            event: LateEvent::NotTold,
            tool: call.label().to_owned(),
            age: now.saturating_duration_since(call.opened),
            attempts: call.attempts,
            call: Some(id),
            clock: habits.gives_up_after(),
            is_repeated: std::mem::replace(&mut self.has_not_told, true),
        };
        gate.calls.events.push_back(FilterEvent::Late(Box::new(news)));
        false
    }

    /// Learns from a call that its client has given up because the client's clock ran out.
    pub(super) fn note_given_up(&mut self, gate: &Gate, now: Instant, id: CallId) {
        let call = gate.calls.open.get(id).filter(|call| call.signature.is_some());
        let Some(call) = call else { return };
        let age = millis(call.waited_at(now));
        self.note_habit(gate, &HabitKey::of(gate, call), Habit::GivenUp(age));
    }

    /// Learns from a call that has waited for the cancellation of an older call for the same work, while the older call
    /// is still open.
    pub(super) fn note_left_open(&mut self, gate: &Gate, who: Principal, what: &Signature) {
        let is_meant = |call: &Call| {
            call.signature.as_deref() == Some(what)
                && gate.calls.streams.late_principal(call.stream) == who
        };
        let open = gate.calls.open.iter().find(|(_, call)| is_meant(call));
        if let Some(client) = open.map(|(_, call)| HabitKey::of(gate, call)) {
            self.note_habit(gate, &client, Habit::LeftOpen);
        }
    }

    /// Whether an open call asks for this work and is so old that its client's clock may have run out, so that a
    /// cancellation may follow. Calls of clients that leave calls open do not count.
    pub(super) fn repeats(
        &self,
        gate: &Gate,
        now: Instant,
        who: Principal,
        what: &Signature,
    ) -> bool {
        gate.calls.open.iter().any(|(_, call)| {
            // No client's clock runs out for a younger call, so the client wants the work twice.
            now >= call.opened + REPEATED_AGE_MIN
                && call.signature.as_deref() == Some(what)
                && call.task.is_none()
                && !call.shadow
                && self.repeated_after(gate, call).is_none()
                && gate.calls.streams.late_principal(call.stream) == who
        })
    }
}
