//! The bytes that a filter keeps in memory for clients that come later: answers of late calls and of tasks. How many
//! there may be besides the limits of the settings, its shell says: others keep bytes too.

use crate::progress::filter::Filter;

impl Filter {
    /// Bytes of the answers that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.late.bytes() + self.own_tasks.bytes()
    }

    /// Whether the next message of the server may be kept.
    pub fn may_keep(&self) -> bool {
        let mut open = self.correlator.ledger.iter();
        !self.late.is_empty()
            || !self.own_tasks.is_empty()
            || open.any(|(_, call)| call.signature.is_some())
    }

    /// So many bytes may be kept besides those that are kept now.
    pub(crate) fn set_kept_room(&mut self, bytes: usize) {
        self.kept_room = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Takes room for an answer that is to be kept; false if there is none.
    pub(crate) fn take_kept_room(&mut self, bytes: usize) -> bool {
        if self.kept_room == u32::MAX {
            return true;
        }
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.kept_room.checked_sub(bytes));
        self.kept_room = left.unwrap_or(self.kept_room);
        left.is_some()
    }
}
