//! A message within the bytes that have arrived. A reference to the bytes is kept only if a part of the message is
//! kept.

use bytes::Bytes;

/// A message, and the event that contained it.
#[derive(Debug, Clone, Copy)]
pub struct ArrivedMessage<'a> {
    /// The text of the whole message.
    pub text: &'a [u8],
    /// The bytes of the event that contained the message.
    pub frame: &'a [u8],
    /// The bytes that have arrived. `text` and `frame` are slices of them.
    pub source: &'a Bytes,
}

impl ArrivedMessage<'_> {
    /// Returns the text as bytes that can be kept.
    pub fn held_text(&self) -> Bytes {
        self.source.slice_ref(self.text)
    }

    /// Returns the event as bytes that can be kept.
    pub fn held_frame(&self) -> Bytes {
        self.source.slice_ref(self.frame)
    }
}
