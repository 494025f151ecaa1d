//! The messages of a server that wait for their verdict, so that observers can link both.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::input::Input;
use crate::protocol::json;

/// Maximum number of server messages of one connection that wait for their verdict at an observer. Beyond the limit the
/// oldest are dropped.
const WAITING_MAX: usize = 1024;

/// A message of the server that is not judged yet.
#[derive(Debug)]
struct PendingVerdict {
    number: u64,
    /// Messages in it that are not judged yet.
    remaining: usize,
    /// The places of the messages in it, of an array.
    elements: Vec<Range<usize>>,
    at: Instant,
    text: Bytes,
}

/// The server messages of one filter that wait for their verdict.
#[derive(Debug, Default)]
pub(super) struct PendingVerdicts {
    messages: VecDeque<PendingVerdict>,
}

impl PendingVerdicts {
    /// Takes the message of a server's input, if the input is a message. The next message of the server has this
    /// number.
    pub(super) fn receive(&mut self, at: Instant, input: &Input, number: u64) {
        let text = match input {
            Input::ServerMessage(_, message) | Input::HandleForeign(_, message) => message.raw(),
            Input::ServerProgress(_, text) | Input::ServerLarge(_, text, _) => text,
            _ => return,
        };
        // Another filter has judged the message before, so that its number is given again.
        if self.messages.back().is_some_and(|last| last.number == number) {
            self.messages.pop_back();
        }
        if self.messages.len() >= WAITING_MAX {
            self.messages.pop_front();
        }
        // The elements of an array have their own numbers, and their verdicts come one by one.
        let is_array = text.first() == Some(&b'[');
        let elements = is_array.then(|| json::elements(text)).flatten();
        let elements = elements.map(|(elements, _)| elements).unwrap_or_default();
        let (remaining, text) = (elements.len().max(1), text.clone());
        self.messages.push_back(PendingVerdict { number, remaining, elements, at, text });
    }

    /// Takes out the message of this number, and the time when it came.
    pub(super) fn take(&mut self, number: u64) -> Option<(Instant, Bytes)> {
        // The newest one whose number is not above: an element of an array has a number above that of the array.
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
