//! The fast paths of the filter, with what observers see of them.

use std::time::Instant;

use bytes::Bytes;

use super::FilterGuard;
use crate::progress::input::Input;
use crate::progress::{FastPath, Filter, Origin, StreamId, Transmit, TransmitKind};
use crate::protocol::jsonrpc::{Framing, Key, Message};

impl FilterGuard {
    /// [`Filter::fast_path`], of the text of a whole message.
    pub fn fast_path(&mut self, now: Instant, stream: StreamId, text: &Bytes) -> bool {
        let number = self.filter.messages() + 1;
        let plain = self.try_with(|filter| filter.fast_path(now, stream, text));
        let is_plain = plain == Some(true);
        if let Some(emitter) = self.emitter.as_mut().filter(|_| is_plain) {
            emitter.input(now, Input::ServerProgress(stream, text.clone()), number);
            let transmit = Transmit::whole(TransmitKind::Progress, text.clone().into());
            emitter.to_client(now, stream, &transmit);
            self.note();
            self.apply(now, Input::MarkWritten(stream));
        }
        is_plain
    }

    /// [`Filter::fast_repair`], of the text of a whole message and its event.
    pub fn fast_repair(
        &mut self,
        now: Instant,
        stream: StreamId,
        (text, frame): (&Bytes, &Bytes),
        is_elsewhere: impl FnOnce(&Key) -> bool,
    ) -> FastPath {
        if self.emitter.is_some() && self.fast_path(now, stream, text) {
            return FastPath::Unchanged;
        }
        let number = self.filter.messages() + 1;
        let repair =
            |filter: &mut Filter| filter.fast_repair(now, stream, (text, frame), is_elsewhere);
        let fate = self.try_with(repair).unwrap_or(FastPath::NotTaken);
        if self.emitter.is_some() && fate != FastPath::NotTaken {
            self.show_fast(now, stream, number, (text, frame), &fate);
        }
        fate
    }

    /// Shows the observers a message that took the fast path, as they see one that took the ordinary path.
    fn show_fast(
        &mut self,
        now: Instant,
        stream: StreamId,
        number: u64,
        (text, frame): (&Bytes, &Bytes),
        fate: &FastPath,
    ) {
        let message = Message::parse(text.clone()).framed(Framing::Within(frame.clone()));
        let sent = match fate {
            FastPath::NotTaken | FastPath::Kept => None,
            FastPath::Unchanged => Some(Transmit::of(&message)),
            FastPath::Rewritten(payload) => {
                Some(Transmit::whole(TransmitKind::Progress, payload.clone()))
            }
        };
        if let Some(emitter) = &mut self.emitter {
            emitter.input(now, Input::ServerMessage(Origin::Stream(stream), message), number);
            if let Some(sent) = &sent {
                emitter.to_client(now, stream, sent);
            }
        }
        self.note();
        if sent.is_some() {
            self.apply(now, Input::MarkWritten(stream));
        }
    }
}
