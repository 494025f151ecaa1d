//! The fast paths of the filter, with what observers see of them.

use std::time::Instant;

use bytes::Bytes;

use super::FilterGuard;
use crate::progress::input::Input;
use crate::progress::{FastPath, Filter, StreamId, Transmit, TransmitKind};
use crate::protocol::jsonrpc::Key;

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

    /// [`Filter::fast_repair`], of the text of a whole message and its event. Where somebody observes, only a
    /// message that is forwarded unchanged takes this path.
    pub fn fast_repair(
        &mut self,
        now: Instant,
        stream: StreamId,
        (text, frame): (&Bytes, &Bytes),
        is_elsewhere: impl FnOnce(&Key) -> bool,
    ) -> FastPath {
        if self.emitter.is_some() {
            let is_plain = self.fast_path(now, stream, text);
            return if is_plain { FastPath::Unchanged } else { FastPath::NotTaken };
        }
        let repair =
            |filter: &mut Filter| filter.fast_repair(now, stream, (text, frame), is_elsewhere);
        self.try_with(repair).unwrap_or(FastPath::NotTaken)
    }
}
