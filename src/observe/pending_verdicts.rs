//! The server messages without a verdict yet, so that observers can link a message with its verdict.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::input::Input;
use crate::protocol::json;

/// Maximum number of server messages of one connection that wait for their verdict at an observer. Beyond the limit the
/// oldest are dropped.
const WAITING_MAX: usize = 1024;

/// A server message without a verdict yet.
#[derive(Debug)]
struct PendingVerdict {
    number: u64,
    /// The number of messages in it without a verdict; more than one for an array.
    remaining: usize,
    /// The places of the messages in an array.
    elements: Vec<Range<usize>>,
    at: Instant,
    text: Bytes,
}

/// The server messages of one filter without a verdict yet.
#[derive(Debug, Default)]
pub(super) struct PendingVerdicts {
    messages: VecDeque<PendingVerdict>,
}

impl PendingVerdicts {
    /// Adds the server message of an input, if the input has one. `number` is that of the next server message.
    pub(super) fn receive(&mut self, at: Instant, input: &Input, number: u64) {
        let text = match input {
            Input::ServerMessage(_, message) | Input::HandleForeign(_, message) => message.raw(),
            Input::ServerProgress(_, text) | Input::ServerLarge(_, text, _) => text,
            _ => return,
        };
        // Another filter has already judged the message, so the number is reused.
        if self.messages.back().is_some_and(|last| last.number == number) {
            self.messages.pop_back();
        }
        if self.messages.len() >= WAITING_MAX {
            self.messages.pop_front();
        }
        // Each element of an array has its own number and its own verdict.
        let is_array = text.first() == Some(&b'[');
        let elements = is_array.then(|| json::elements(text)).flatten();
        let elements = elements.map(|(elements, _)| elements).unwrap_or_default();
        let (remaining, text) = (elements.len().max(1), text.clone());
        self.messages.push_back(PendingVerdict { number, remaining, elements, at, text });
    }

    /// Removes the message with this number. Returns it with the time when it arrived.
    pub(super) fn take(&mut self, number: u64) -> Option<(Instant, Bytes)> {
        // An element's number is higher than its array's, so find the newest message that is not above the number.
        let place = self.messages.iter().rposition(|waiting| waiting.number <= number)?;
        let waiting = self.messages.get_mut(place)?;
        let nth = usize::try_from(number - waiting.number).unwrap_or(usize::MAX);
        let (at, text) = (waiting.at, waiting.text.clone());
        let element = waiting.elements.get(nth).filter(|_| waiting.elements.len() > 1);
        let text = element.map_or_else(|| text.clone(), |place| text.slice(place.clone()));
        waiting.remaining = waiting.remaining.saturating_sub(1);
        if waiting.remaining == 0 {
            self.messages.remove(place);
        }
        Some((at, text))
    }
}
