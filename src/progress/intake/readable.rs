//! Messages that strict clients refuse, in a form that every client reads: text that is no Unicode, and members of the
//! envelope that are null.

use std::ops::Range;

use bytes::Bytes;

use crate::progress::event::Origin;
use crate::progress::filter::Filter;
use crate::progress::payload::spliced;
use crate::progress::policy::AnswerRepairs;
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::jsonrpc::{Framing, Kind, Message};
use crate::protocol::sse;
use crate::protocol::unicode::{self, ReadablePiece, ReadablePieces, TextEnd};

impl Filter {
    /// The message in characters that every client reads, if the message has others; adds the repair to `done`.
    pub(crate) fn readable(
        &self,
        origin: Origin,
        message: &Message,
        done: &mut Repairs,
    ) -> Option<Message> {
        let marked = message.behind_mark();
        let text = marked.as_ref().unwrap_or(message).raw();
        let is_fine = message.kind() == Kind::Noise || unicode::is_readable(text);
        if marked.is_none() && is_fine {
            return None;
        }
        if !self.repairs_of_answer(origin, message).unicode {
            return None;
        }
        let readable = unicode::readable(text).map(Bytes::from);
        let text = readable.or_else(|| marked.as_ref().map(|marked| marked.raw().clone()))?;
        done.add(Repair::Unicode);
        Some(with_text(message, text))
    }

    /// The message without the members of its envelope that are null, if it has any; adds the repair to `done`.
    pub(crate) fn without_nulls(
        &self,
        origin: Origin,
        message: &Message,
        done: &mut Repairs,
    ) -> Option<Message> {
        // Progress is written anew.
        if !message.has_nulls() || self.claims_progress(message) {
            return None;
        }
        let places = message.null_members();
        if places.is_empty() || !self.repairs_of_answer(origin, message).error_shape {
            return None;
        }
        done.add(Repair::ErrorShape);
        let splices = places.into_iter().map(|place| (place, Bytes::new())).collect();
        let bare = message.clone().framed(Framing::Itself);
        Some(with_text(message, spliced(&bare, splices).to_bytes()))
    }

    /// Makes a large message readable that comes in pieces, unless the route leaves it as it is.
    pub(crate) fn readable_pieces(&self, origin: Origin) -> Option<ReadablePieces> {
        let settings = self.settings_of_orphan(origin);
        (settings.answers.unicode && !settings.observes()).then(ReadablePieces::default)
    }

    /// The repairs that the request of an answer allows; those of the route for other messages.
    fn repairs_of_answer(&self, origin: Origin, message: &Message) -> AnswerRepairs {
        let key = message.id_key().filter(|_| message.kind() == Kind::Response);
        let call = key.and_then(|key| self.call_of_answer_on(origin, &key));
        if let Some(call) = call.and_then(|call| self.correlator.ledger.get(call)) {
            return call.answer_repairs();
        }
        let settings = self.settings_of_orphan(origin);
        if settings.observes() { AnswerRepairs::NONE } else { settings.answers }
    }
}

/// A piece of a large message in characters that every client reads, and the place of its text: a piece that ends with
/// its text goes on in the next piece.
pub(crate) fn readable_piece(
    readable: &mut Option<ReadablePieces>,
    (piece, text): (Bytes, Range<usize>),
) -> (Bytes, Range<usize>) {
    let Some(readable) = readable else { return (piece, text) };
    let end = if text.end < piece.len() { TextEnd::Here } else { TextEnd::Open };
    let new = match readable.feed(&piece[text.clone()], end) {
        ReadablePiece::AsItIs(length) if length == text.len() => return (piece, text),
        ReadablePiece::AsItIs(length) => {
            let end = text.start + length;
            return (piece.slice(..end), text.start..end);
        }
        ReadablePiece::Instead(new) => new,
    };
    let place = text.start..text.start + new.len();
    (Bytes::from([&piece[..text.start], &new, &piece[text.end..]].concat()), place)
}

/// The message with other text in the same frame.
fn with_text(message: &Message, text: Bytes) -> Message {
    let framing = match message.framing() {
        Framing::Within(frame) => Framing::Within(sse::rewrite(frame, &text)),
        Framing::Renamed(frame) => Framing::Renamed(sse::rewrite(frame, &text)),
        other => other.clone(),
    };
    Message::parse(text).framed(framing)
}
