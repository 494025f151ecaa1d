//! The number of bytes that a filter may still keep in memory, in addition to the limits of the settings.

/// The number of bytes that may still be kept in memory.
#[derive(Debug)]
pub(crate) struct KeptRoom {
    /// The number of bytes; `u32::MAX` means no limit.
    bytes: u32,
}

impl Default for KeptRoom {
    fn default() -> Self {
        Self { bytes: u32::MAX }
    }
}

impl KeptRoom {
    /// Sets the number of bytes that may be kept in addition to the bytes that are kept now.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Returns the number of bytes that may still be kept.
    pub(crate) fn left(&self) -> usize {
        if self.bytes == u32::MAX { usize::MAX } else { self.bytes as usize }
    }

    /// Reserves bytes for an answer that is to be kept. Returns false if there are not enough.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        if self.bytes == u32::MAX {
            return true;
        }
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.bytes.checked_sub(bytes));
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_reserved_as_long_as_there_are_some() {
        let mut room = KeptRoom::default();
        assert!(room.take(usize::MAX) && room.left() == usize::MAX);
        room.set(10);
        assert!(room.take(4) && !room.take(7) && room.left() == 6);
        assert!(room.take(6) && !room.take(1));
    }
}
