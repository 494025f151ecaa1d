//! Large answers to calls that their clients have given up. Each is collected, up to `late.bytes`, and passed to the
//! filter as one message.
//!
//! The id of an answer may come after its result. Until the id is known, every answer is collected; if it belongs to an
//! open call, it is then forwarded in pieces.

use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;

use super::Relay;
use crate::progress::{Disposition, Origin};
use crate::protocol::jsonrpc::{Kind, Message, Scan};
use crate::relay::legs::{ClientLeg, ServerLeg};
use crate::relay::spooled_response::{LateAnswer, SpooledResponse};

impl<C: ClientLeg, S: ServerLeg> Relay<C, S> {
    /// Handles the first piece of a large message.
    pub(super) fn begin_large(
        &mut self,
        now: Instant,
        origin: Origin,
        piece: Bytes,
    ) -> Disposition {
        if self.filter.late_room(None).is_none() {
            let text = 0..piece.len();
            return self.filter.begin_large(now, origin, piece, text);
        }
        self.late_answer = Some(LateAnswer { origin, scan: Scan::default(), text: Vec::new() });
        self.large_piece(now, origin, piece)
    }

    /// Handles a further piece of a large message.
    pub(super) fn large_piece(
        &mut self,
        now: Instant,
        origin: Origin,
        piece: Bytes,
    ) -> Disposition {
        let Some(mut answer) = self.late_answer.take_if(|answer| answer.origin == origin) else {
            let text = 0..piece.len();
            return self.filter.large_piece(now, origin, piece, text);
        };
        answer.scan.feed(&piece);
        answer.text.extend_from_slice(&piece);
        let may_be_late = !matches!(answer.scan.kind(), Kind::Request | Kind::Notification);
        let room = self.filter.late_room(answer.scan.id().as_ref()).filter(|_| may_be_late);
        if room.is_some_and(|room| answer.text.len() <= room) {
            self.late_answer = Some(answer);
            return Disposition::Consumed;
        }
        self.pass_collected(now, answer)
    }

    /// Handles the end of a large message.
    pub(super) fn finish_large(
        &mut self,
        now: Instant,
        origin: Origin,
        whole: bool,
    ) -> Disposition {
        if let Some(answer) = self.late_answer.take_if(|answer| answer.origin == origin) {
            let id = answer.scan.id();
            if whole && id.is_some() && self.filter.late_room(id.as_ref()).is_some() {
                let message = Message::parse(Bytes::from(answer.text));
                return self.filter.server_message(now, origin, &message);
            }
            self.pass_collected(now, answer);
        }
        let why = "the server's message broke off before its end";
        self.filter.finish_large(now, origin, (!whole).then_some(why));
        Disposition::Consumed
    }

    /// Passes on the collected text in pieces, because it is too long or not an answer to a call that was given up.
    fn pass_collected(&mut self, now: Instant, answer: LateAnswer) -> Disposition {
        let text = 0..answer.text.len();
        self.filter.begin_large(now, answer.origin, Bytes::from(answer.text), text)
    }

    /// Begins to read an answer from its file, if its call continues without its client. Returns any other answer.
    pub(super) fn read_late(&mut self, response: SpooledResponse) -> Option<SpooledResponse> {
        let id = response.id();
        let room = id.is_some().then(|| self.filter.late_room(id.as_ref())).flatten();
        if room.is_none_or(|room| response.size() > room as u64) {
            return Some(response);
        }
        self.late_readers.push(response.into_late_reader());
        None
    }

    /// Returns the next answer that has been read from its file.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Message> {
        for (place, reader) in self.late_readers.iter_mut().enumerate() {
            if let Poll::Ready(message) = reader.poll_message(cx) {
                self.late_readers.swap_remove(place);
                return Poll::Ready(message);
            }
        }
        Poll::Pending
    }
}
