//! Messages of MCP in events of a stream.

use crate::protocol::jsonrpc::{Framing, Kind, Message};
use crate::protocol::sse;
use crate::protocol::sse::{Piece, SseEvent};

/// The message of an event, if the event has one. `rename` decides whether an event of another name than
/// `message` gets this name.
pub(crate) fn message_in(event: &SseEvent, rename: impl FnOnce() -> bool) -> Option<Message> {
    let data = event.data().filter(|data| !data.is_empty())?;
    let message = Message::parse(data);
    if message.kind() == Kind::Noise {
        return None;
    }
    // Clients look at no event of another name.
    let is_renamed = !event.is_message() && rename();
    let frame = if is_renamed { sse::rename(&event.raw) } else { event.raw.clone() };
    Some(message.framed(Framing::Within(frame)))
}

/// The range of the message in a piece of a large event.
pub(crate) fn text_of(piece: &Piece) -> std::ops::Range<usize> {
    piece.data.clone().unwrap_or(0..0)
}
