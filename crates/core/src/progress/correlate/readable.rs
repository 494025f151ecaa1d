//! Rewrites messages that strict clients refuse: characters that JSON does not allow, and envelopes with superfluous or
//! missing members.

use std::ops::Range;

use bytes::Bytes;

use crate::protocol::jsonrpc::{Framing, Kind, Message, own_error};
use crate::protocol::sse;
use crate::protocol::unicode::{ReadablePiece, ReadablePieces, TextEnd};

/// The error that replaces an empty answer.
const EMPTY_ANSWER: &str = "the server's answer has neither a result nor an error";

/// Returns a piece of a large message in characters that every client can parse, and the range of the message text in
/// the piece. If the text reaches the end of the piece, it continues in the next piece.
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

/// Returns the range of an answer with neither a result nor an error, and the error that replaces it. No client can use
/// such an answer, and most wait for another.
pub(super) fn empty_answer_error(message: &Message) -> Option<(Range<usize>, Bytes)> {
    // Helidon answers with an id alone.
    let range = message.object_range().filter(|_| message.is_empty_answer())?;
    Some((range, own_error(&message.id()?, EMPTY_ANSWER, None)))
}

/// Returns the message with another text in the same frame.
pub(super) fn with_text(message: &Message, text: Bytes) -> Message {
    let framing = match message.framing() {
        Framing::Within(frame) => Framing::Within(sse::rewrite(frame, &text)),
        Framing::Renamed(frame) => Framing::Renamed(sse::rewrite(frame, &text)),
        other => other.clone(),
    };
    let new = Message::parse(text);
    // A bare error is recognised as an answer only by its stream, so the new text has to be marked as an answer again.
    let is_answer = message.kind() == Kind::Response;
    if is_answer { new.or_bare_error() } else { new }.framed(framing)
}
