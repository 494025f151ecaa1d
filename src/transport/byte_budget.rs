//! Bytes that several owners hold together, and their limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all owners of room in it hold together: bodies of requests that are not whole, or large answers in
/// files.
#[derive(Debug, Default)]
pub struct ByteBudget {
    held: AtomicU64,
    max: AtomicU64,
}

impl ByteBudget {
    /// Sets the limit, in bytes. What is held already stays.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Room for one owner, which has no bytes yet.
    pub(crate) fn room(self: &Arc<Self>) -> ByteRoom {
        ByteRoom { budget: Arc::clone(self), bytes: 0 }
    }
}

/// The bytes of one owner, until the room is dropped.
#[derive(Debug)]
pub(crate) struct ByteRoom {
    budget: Arc<ByteBudget>,
    bytes: u64,
}

/// All owners together would have more bytes than they may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BudgetExceeded;

impl ByteRoom {
    /// Takes room for so many more bytes.
    ///
    /// # Errors
    /// If all owners would have more bytes than they may. The bytes count until the room is dropped all the same.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        let bytes = bytes as u64;
        let before = self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        let fits = before + bytes <= self.budget.max.load(Ordering::Relaxed);
        fits.then_some(()).ok_or(BudgetExceeded)
    }
}

impl Drop for ByteRoom {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
