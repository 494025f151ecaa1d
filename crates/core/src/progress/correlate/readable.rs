//! Messages that strict clients refuse, in a form that every client reads: characters that JSON does not allow, and
//! envelopes with too much or too little in them.

use std::ops::Range;

use bytes::Bytes;

use crate::progress::event::Origin;
use crate::progress::payload::spliced;
use crate::progress::policy::AnswerRepairs;
use crate::progress::verdict::{Repair, Repairs};
use crate::protocol::jsonrpc::{Framing, Kind, Message, own_error};
use crate::protocol::unicode::{ReadablePiece, ReadablePieces, TextEnd};
use crate::protocol::{sse, unicode};

/// The error for an answer that is empty.
const EMPTY_ANSWER: &str = "the server's answer has neither a result nor an error";

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

/// The range of an answer with neither a result nor an error, and the error for its place. No client can use such an
/// answer, and most wait for another.
fn empty_answer_error(message: &Message) -> Option<(Range<usize>, Bytes)> {
    // Helidon answers with an id alone.
    let range = message.object_range().filter(|_| message.is_empty_answer())?;
    Some((range, own_error(&message.id()?, EMPTY_ANSWER, None)))
}

/// The message with other text in the same frame.
fn with_text(message: &Message, text: Bytes) -> Message {
    let framing = match message.framing() {
        Framing::Within(frame) => Framing::Within(sse::rewrite(frame, &text)),
        Framing::Renamed(frame) => Framing::Renamed(sse::rewrite(frame, &text)),
        other => other.clone(),
    };
    let new = Message::parse(text);
    // A bare error is an answer only by where it came from, which its new text does not show.
    let is_answer = message.kind() == Kind::Response;
    if is_answer { new.or_bare_error() } else { new }.framed(framing)
}

use crate::progress::correlate::correlator::Correlator;

impl Correlator {
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

    /// The message with the envelope that strict clients expect, if it has another: with `"jsonrpc":"2.0"`, without
    /// members that are null, and an error in an answer that is empty. Adds the repairs to `done`.
    pub(crate) fn well_formed(
        &self,
        origin: Origin,
        message: &Message,
        done: &mut Repairs,
    ) -> Option<Message> {
        let version = message.missing_version();
        let is_fine = version.is_none() && !message.has_nulls() && !message.is_empty_answer();
        // The gate writes faulty progress anew, with an envelope of its own.
        if is_fine || self.claims_progress(message) {
            return None;
        }
        let switches = self.repairs_of_answer(origin, message);
        let error = empty_answer_error(message).filter(|_| switches.error_shape);
        let mut splices = Vec::new();
        if let Some(version) = version.filter(|_| switches.envelope) {
            done.add(Repair::Envelope);
            // The error that takes the answer's place has a `jsonrpc` member of its own.
            splices.extend(Some(version).filter(|_| error.is_none()));
        }
        let has_nulls = error.is_none() && switches.error_shape;
        let nulls = if has_nulls { message.null_members() } else { Vec::new() };
        if error.is_some() || !nulls.is_empty() {
            done.add(Repair::ErrorShape);
        }
        splices.extend(nulls.into_iter().map(|place| (place, Bytes::new())));
        splices.extend(error);
        if splices.is_empty() {
            return None;
        }
        // The ranges are those of the text. The frame is put around the new text afterwards.
        let bare = message.clone().framed(Framing::Itself);
        Some(with_text(message, spliced(&bare, splices).to_bytes()))
    }

    /// Makes a large message readable that comes in pieces, unless the route leaves it as it is.
    pub(crate) fn readable_pieces(&self, origin: Origin) -> Option<ReadablePieces> {
        let settings = self.settings_of_orphan(origin);
        (settings.answers.unicode && !settings.observes()).then(ReadablePieces::default)
    }

    /// The repairs that the request of an answer allows; those of the route for other messages.
    pub(crate) fn repairs_of_answer(&self, origin: Origin, message: &Message) -> AnswerRepairs {
        let key = message.id_key().filter(|_| message.kind() == Kind::Response);
        let call = key.and_then(|key| self.call_of_answer_on(origin, &key));
        if let Some(call) = call.and_then(|call| self.ledger.get(call)) {
            return call.answer_repairs();
        }
        let settings = self.settings_of_orphan(origin);
        if settings.observes() { AnswerRepairs::NONE } else { settings.answers }
    }
}
