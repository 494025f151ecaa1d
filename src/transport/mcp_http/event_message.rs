//! MCP messages in the events of a stream.

use std::time::Duration;

use crate::protocol::jsonrpc::{Framing, Kind, Message};
use crate::protocol::mcp::Revision;
use crate::protocol::sse;
use crate::protocol::sse::{Piece, SseEvent};

/// The time after which a complete message is taken although its end is missing: the blank line of its event, or the
/// end of its body. Servers that forget the end leave the connection open.
pub(crate) const UNENDED_WAIT: Duration = Duration::from_secs(1);

/// Returns the message of an event, if the event contains one. `rename` decides whether an event with another name than
/// `message` gets this name.
pub(crate) fn message_in(event: &SseEvent, rename: impl FnOnce() -> bool) -> Option<Message> {
    let data = event.data().filter(|data| !data.is_empty())?;
    let message = Message::parse(data).or_bare_error();
    if message.kind() == Kind::Noise && message.behind_mark().is_none() {
        return None;
    }
    // Clients ignore events whose name is not `message`.
    let is_renamed = !event.is_message() && rename();
    Some(message.framed(match is_renamed {
        true => Framing::Renamed(sse::rename(&event.raw)),
        // Clients also ignore an event without its blank line, so the completed form is sent.
        false if event.is_completed() => Framing::Renamed(event.raw.clone()),
        false => Framing::Within(event.raw.clone()),
    }))
}

/// Whether the data of an event is a complete message.
pub(crate) fn has_whole_message(event: &SseEvent) -> bool {
    let kind = event.data().map(|data| Message::parse(data).or_bare_error().kind());
    kind.is_some_and(|kind| !matches!(kind, Kind::Noise | Kind::Opaque))
}

/// Whether clients would read an event as a message although its data is not a message, such as `data: ping`. An event
/// with an id and empty data is not stray: servers of 2025-11-25 begin a stream with it.
pub(crate) fn is_stray(event: &SseEvent) -> bool {
    let data = event.data().filter(|_| event.is_message());
    data.is_some_and(|data| match data.is_empty() {
        true => !event.has_id(),
        false => Message::parse(data).or_bare_error().kind() == Kind::Noise,
    })
}

/// Returns the messages of an event, and the last one separately. An array is divided, unless `revision` allows arrays
/// and the whole array belongs to one stream; `is_mixed` returns whether it belongs to several.
pub(crate) fn divided(
    message: Message,
    revision: Option<Revision>,
    is_mixed: impl FnOnce(&Message) -> bool,
) -> (Vec<Message>, Message) {
    // Only MCP 2025-03-26 has arrays of messages.
    let is_divided = message.kind() == Kind::Batch
        && (revision != Some(Revision::V2025_03_26) || is_mixed(&message));
    let mut parts = if is_divided { message.apart() } else { Vec::new() };
    let last = parts.pop().unwrap_or(message);
    (parts, last)
}

/// Whether a message comes from an array that was divided.
pub(crate) fn is_part(message: &Message) -> bool {
    matches!(message.framing(), Framing::Apart(_))
}

/// Returns the range of the message's text in a piece of a large event.
pub(crate) fn text_of(piece: &Piece) -> std::ops::Range<usize> {
    piece.data.clone().unwrap_or(0..0)
}
