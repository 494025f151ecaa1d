//! The events of a conversation that the program has not taken yet.

use std::collections::VecDeque;

use crate::conversation::output::ConversationEvent;

/// Limit of the events that wait while the program does not poll. Beyond the limit the oldest event is dropped and
/// counted.
pub const EVENTS_MAX: usize = 1024;

/// Limit of the bytes of waiting events that carry text which is not a message. Beyond the limit the oldest event is
/// dropped and counted.
pub const NOISE_MAX: usize = 1 << 20;

/// Waiting events, oldest first, limited by [`EVENTS_MAX`] and [`NOISE_MAX`].
#[derive(Debug, Default)]
pub(crate) struct EventBuffer {
    events: VecDeque<ConversationEvent>,
    noise: usize,
    /// Number of events that were dropped and not reported yet.
    lost: u64,
}

impl EventBuffer {
    pub(crate) fn push(&mut self, event: ConversationEvent) {
        self.noise += noise_of(&event);
        self.events.push_back(event);
        while self.events.len() > EVENTS_MAX || self.noise > NOISE_MAX {
            let Some(oldest) = self.events.pop_front() else { return };
            self.noise -= noise_of(&oldest);
            self.lost += 1;
        }
    }

    /// Returns the next event, oldest first. If events were dropped, their number is returned before all other events.
    pub(crate) fn pop(&mut self) -> Option<ConversationEvent> {
        if self.lost > 0 {
            return Some(ConversationEvent::Lost(std::mem::take(&mut self.lost)));
        }
        let event = self.events.pop_front()?;
        self.noise -= noise_of(&event);
        Some(event)
    }
}

fn noise_of(event: &ConversationEvent) -> usize {
    match event {
        ConversationEvent::Noise(text) => text.len(),
        _ => 0,
    }
}
