//! The fast paths of the filter, which observers see as ordinary paths.

use std::time::Instant;

use bytes::Bytes;

use super::FilterGuard;
use crate::progress::input::Input;
use crate::progress::{
    ArrivedMessage, FastPath, Filter, Origin, Payload, StreamId, Transmit, TransmitKind,
};
use crate::protocol::jsonrpc::{Framing, Key, Message};

impl FilterGuard {
    /// See [`Intake::fast_path`](crate::progress::Intake::fast_path). `text` is a whole message.
    pub fn fast_path(&mut self, now: Instant, stream: StreamId, text: &Bytes) -> bool {
        let number = self.filter.intake().messages() + 1;
        let plain = self.try_with(|filter| filter.intake_mut().fast_path(now, stream, text));
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

    /// See [`Intake::fast_repair`](crate::progress::Intake::fast_repair).
    pub fn fast_repair(
        &mut self,
        now: Instant,
        stream: StreamId,
        arrived: ArrivedMessage<'_>,
        is_elsewhere: impl FnOnce(&Key) -> bool,
    ) -> FastPath {
        if self.emitter.is_some() && self.fast_path(now, stream, &arrived.held_text()) {
            return FastPath::Unchanged;
        }
        let number = self.filter.intake().messages() + 1;
        let repair = |filter: &mut Filter| {
            filter.intake_mut().fast_repair(now, stream, arrived, is_elsewhere)
        };
        let fate = self.try_with(repair).unwrap_or(FastPath::NotTaken);
        if self.emitter.is_some() && fate != FastPath::NotTaken {
            self.show_fast(now, stream, number, &arrived, fate);
        }
        fate
    }

    /// See [`Intake::rewritten`](crate::progress::Intake::rewritten).
    pub fn rewritten(&self) -> &[u8] {
        self.filter.intake().rewritten()
    }

    /// Shows the observers a message that took the fast path as if it had taken the ordinary one.
    fn show_fast(
        &mut self,
        now: Instant,
        stream: StreamId,
        number: u64,
        arrived: &ArrivedMessage<'_>,
        fate: FastPath,
    ) {
        let framing = Framing::Within(arrived.held_frame());
        let message = Message::parse(arrived.held_text()).framed(framing);
        let sent = match fate {
            FastPath::NotTaken | FastPath::Kept => None,
            FastPath::Unchanged => Some(Transmit::of(&message)),
            FastPath::Rewritten => {
                let text = Bytes::copy_from_slice(self.filter.intake().rewritten());
                let payload = Payload::own(text).in_place_of(message.framing());
                Some(Transmit::whole(TransmitKind::Progress, payload))
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
