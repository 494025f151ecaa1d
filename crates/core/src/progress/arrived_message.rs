//! A message among the bytes that have arrived. The bytes are shared only when a part of the
//! message is kept.

use bytes::Bytes;

/// A message in the event that it came in.
#[derive(Debug, Clone, Copy)]
pub struct ArrivedMessage<'a> {
    /// The text of the whole message.
    pub text: &'a [u8],
    /// The bytes of its event.
    pub frame: &'a [u8],
    /// The bytes that have arrived, of which the two are slices.
    pub source: &'a Bytes,
}

impl ArrivedMessage<'_> {
    /// The text, held.
    pub fn held_text(&self) -> Bytes {
        self.source.slice_ref(self.text)
    }

    /// The event, held.
    pub fn held_frame(&self) -> Bytes {
        self.source.slice_ref(self.frame)
    }
}
