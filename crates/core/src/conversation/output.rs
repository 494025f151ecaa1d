//! The results of a conversation.

use std::time::Instant;

use bytes::Bytes;

use crate::progress::{FilterEvent, StreamId};

/// An action for the program, in the order in which [`Conversation::poll`](crate::conversation::Conversation::poll)
/// returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Write these bytes to the client, on this stream. In lines, they end with a newline or are a part of a longer
    /// line; otherwise they are one message.
    ToClient(StreamId, Bytes),
    /// Write these bytes to the server. The stream is the one on which the client sent the message, or
    /// [`StreamId::NOWHERE`] for a message of the engine itself.
    ToServer(StreamId, Bytes),
    /// An event that a program may log.
    Event(ConversationEvent),
    /// No action is left now. Wait for the next input, at most until this time, and then call
    /// [`Conversation::tick`](crate::conversation::Conversation::tick). `None`: no time limit before the next input.
    Timeout(Option<Instant>),
}

/// An event in a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationEvent {
    /// The engine has decided on a message or a call.
    Decision(FilterEvent),
    /// The server has written text that is not a message, with its line end. The client does not get the text.
    Noise(Bytes),
    /// The engine has panicked. From now on messages pass as they come, and progress is withheld.
    Failed,
    /// The number of events that were dropped, oldest first, because the program did not take them
    /// ([`EVENTS_MAX`](crate::conversation::EVENTS_MAX), [`NOISE_MAX`](crate::conversation::NOISE_MAX)).
    Lost(u64),
}
