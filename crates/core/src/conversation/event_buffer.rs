//! The events of a conversation that the program has not taken yet.

use std::collections::VecDeque;

use crate::conversation::output::ConversationEvent;

/// Events of a conversation that wait for a program that does not poll. Beyond the limit the oldest is dropped and
/// counted.
pub const EVENTS_MAX: usize = 1024;

/// Bytes of the texts in waiting events that are not messages. Beyond the limit the oldest event is dropped and
/// counted.
pub const NOISE_MAX: usize = 1 << 20;

/// Events, oldest first, with their limits.
#[derive(Debug, Default)]
pub(crate) struct EventBuffer {
    events: VecDeque<ConversationEvent>,
    noise: usize,
    /// Events that were dropped and not reported yet.
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

    /// Returns the next event, oldest first. The number of dropped events comes before all others.
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
