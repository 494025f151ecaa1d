//! Passes the messages of a conversation in lines to the filter.

use std::time::Instant;

use crate::conversation::Conversation;
use crate::conversation::output::ConversationEvent;
use crate::conversation::wire::{SOLE_STREAM, Wire};
use crate::progress::{Fragment, Origin, Payload};
use crate::protocol::jsonrpc::{Message, Scan};
use crate::protocol::lines::LineFrame;

/// The reason in the error for a request whose answer the server broke off.
const BROKEN_OFF: &str = "the server's output ended within its answer";

impl Conversation {
    /// Handles a frame from the client.
    pub(crate) fn client_frame(&mut self, now: Instant, wire: &mut Wire, frame: LineFrame) {
        let (payload, part) = match frame {
            LineFrame::Line(line) | LineFrame::Rest(line) => {
                let message = Message::parse(line);
                (self.filter.client_message(now, SOLE_STREAM, &message), Fragment::Whole)
            }
            LineFrame::Start(piece) => {
                wire.large = Scan::default();
                wire.large.feed(&piece);
                (piece.into(), Fragment::Piece)
            }
            LineFrame::Chunk(piece) => {
                wire.large.feed(&piece);
                (piece.into(), Fragment::Piece)
            }
            LineFrame::End { .. } => {
                let scan = &wire.large;
                self.filter.attempt(|filter| {
                    filter.intake_mut().finish_large_client(now, SOLE_STREAM, scan)
                });
                (Payload::default(), Fragment::End)
            }
        };
        wire.to_server.put(&payload, part, SOLE_STREAM, &mut self.to_server);
        self.keep_events();
    }

    /// Handles a frame from the server.
    pub(crate) fn server_frame(&mut self, now: Instant, frame: LineFrame) {
        let filter = &mut self.filter;
        let place = match frame {
            LineFrame::Line(line) => {
                filter.server_message(now, Origin::Shared, &Message::parse(line))
            }
            // The server has exited. Text without a newline is a message only if it is complete JSON: the server may
            // have been stopped while it wrote.
            LineFrame::Rest(rest) if is_whole(&rest) => {
                filter.server_message(now, Origin::Shared, &Message::parse(rest))
            }
            LineFrame::Rest(rest) => return self.events.push(ConversationEvent::Noise(rest)),
            LineFrame::Start(piece) => filter.begin_large(now, piece),
            LineFrame::Chunk(piece) => filter.large_piece(now, piece),
            LineFrame::End { terminated } => {
                filter.finish_large(now, (!terminated).then_some(BROKEN_OFF))
            }
        };
        self.note_place(place);
    }
}

/// Whether the text after the last newline of the input is a complete JSON value.
fn is_whole(rest: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(rest).is_ok()
}
