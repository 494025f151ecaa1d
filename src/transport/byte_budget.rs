//! A limit for the bytes that several owners hold together.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use bytes::Bytes;

/// The number of equal shares of a budget. One client may use one share, a quarter, so that it cannot use up the memory
/// of all clients.
const SHARES: u64 = 4;

/// Minimum length in bytes of a request body that is counted while it waits. Shorter bodies fit into the read buffer of
/// their connection, and the limits of streams apply to them.
pub(crate) const KEPT_MIN: usize = 16 << 10;

/// A limit for bytes of one kind, and the bytes that all owners hold now: incomplete request bodies, large answers in
/// files, or messages that wait in memory.
#[derive(Debug, Default)]
pub struct ByteBudget {
    held: AtomicU64,
    max: AtomicU64,
    /// The bytes of each client that has a share. An entry is removed after its last share.
    clients: Mutex<HashMap<u64, Weak<AtomicU64>>>,
}

impl ByteBudget {
    /// Sets the limit, in bytes. Bytes that are already held stay.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Returns the bytes that all owners hold.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns an empty account for an owner that belongs to no client.
    pub(crate) fn room(self: &Arc<Self>) -> ByteRoom {
        self.share(None).room()
    }

    /// Returns the share of the client with this number. Without a number only the limit of the whole budget applies.
    pub(crate) fn share(self: &Arc<Self>, client: Option<u64>) -> ByteShare {
        let own = client.map(|client| {
            // The lock is taken once for each share, not for each change: the bytes are an atomic counter.
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = clients.get(&client).and_then(Weak::upgrade) {
                return known;
            }
            // Entries of clients that have disconnected are removed when a new client comes, so that nothing has to
            // report a disconnect.
            clients.retain(|_, known| known.strong_count() > 0);
            let own = Arc::<AtomicU64>::default();
            clients.insert(client, Arc::downgrade(&own));
            own
        });
        ByteShare { budget: Arc::clone(self), own }
    }
}

/// The share of one client in a budget.
#[derive(Debug, Clone)]
pub struct ByteShare {
    budget: Arc<ByteBudget>,
    /// The number of bytes that the client holds.
    own: Option<Arc<AtomicU64>>,
}

impl ByteShare {
    /// Returns an empty account for one owner.
    pub(crate) fn room(&self) -> ByteRoom {
        ByteRoom { share: self.clone(), bytes: 0 }
    }
}

/// The bytes that one owner holds, counted in the budget until this value is dropped.
#[derive(Debug)]
pub struct ByteRoom {
    share: ByteShare,
    bytes: u64,
}

/// Which limit would be exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BudgetExceeded {
    /// The limit of the whole budget.
    All,
    /// The share of the client.
    Client,
}

impl ByteRoom {
    /// Counts `bytes` more.
    ///
    /// # Errors
    /// If the whole budget or the client's share would be exceeded. The bytes are counted nevertheless, until the value
    /// is dropped.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        let bytes = bytes as u64;
        // Added before the comparison, so that two concurrent owners cannot both take the last bytes. `Relaxed` is
        // enough, because no other memory depends on the counters.
        let max = self.share.budget.max.load(Ordering::Relaxed);
        let all = self.share.budget.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let own = self
            .share
            .own
            .as_ref()
            .map_or(0, |own| own.fetch_add(bytes, Ordering::Relaxed) + bytes);
        self.bytes += bytes;
        match () {
            // The share of the client is checked first, so that a client that exceeds it gets that error.
            () if own > max / SHARES => Err(BudgetExceeded::Client),
            () if all > max => Err(BudgetExceeded::All),
            () => Ok(()),
        }
    }

    /// Counts `bytes` from now on, instead of the earlier number.
    ///
    /// # Errors
    ///
    /// As for [`ByteRoom::hold`], but the count then does not change.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        let before = self.bytes;
        match (bytes as u64).checked_sub(before) {
            Some(0) => Ok(()),
            Some(more) => {
                let held = self.hold(usize::try_from(more).unwrap_or(usize::MAX));
                // `hold` counts the bytes even if it fails, so they must be subtracted here.
                held.inspect_err(|_| self.give_back(more))
            }
            None => {
                self.give_back(before - bytes as u64);
                Ok(())
            }
        }
    }

    /// Counts `bytes` from now on, even beyond the limit.
    pub(crate) fn count(&mut self, bytes: usize) {
        let (before, bytes) = (self.bytes, bytes as u64);
        if let Some(less) = before.checked_sub(bytes) {
            return self.give_back(less);
        }
        // Ignore the error: these bytes are already in memory and are counted even beyond the limit.
        let _ = self.hold(usize::try_from(bytes - before).unwrap_or(usize::MAX));
    }

    /// Returns the number of further bytes that may be held.
    pub(crate) fn left(&self) -> usize {
        let max = self.share.budget.max.load(Ordering::Relaxed);
        let all = max.saturating_sub(self.share.budget.held());
        let own = self.share.own.as_ref();
        let own =
            own.map_or(u64::MAX, |own| (max / SHARES).saturating_sub(own.load(Ordering::Relaxed)));
        usize::try_from(all.min(own)).unwrap_or(usize::MAX)
    }

    /// Returns the bytes that this owner holds.
    pub(crate) fn held(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.share.budget.held.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(own) = &self.share.own {
            own.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns `bytes`, which are counted until their last copy is dropped.
    pub(crate) fn keep_for(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Kept { bytes, _room: self })
    }
}

impl Drop for ByteRoom {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// Bytes, with the account in which they are counted.
struct Kept<R> {
    bytes: Bytes,
    _room: R,
}

impl<R> AsRef<[u8]> for Kept<R> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns `new`, counted in the account of `old` as long as `new` exists.
pub(crate) fn in_room_of(old: Bytes, new: Bytes) -> Bytes {
    // Short bodies are not counted (`KEPT_MIN`), so they have no account.
    if old.len() < KEPT_MIN {
        return new;
    }
    Bytes::from_owner(Kept { bytes: new, _room: old })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(max: u64) -> Arc<ByteBudget> {
        let budget = Arc::<ByteBudget>::default();
        budget.set_max(max);
        budget
    }

    #[test]
    fn a_client_has_a_quarter_and_all_have_the_whole() {
        let budget = budget(400);
        let mut rooms: Vec<ByteRoom> = Vec::new();
        for client in 0..5 {
            let mut one = budget.share(Some(client)).room();
            let mut other = budget.share(Some(client)).room();
            assert_eq!(one.resize(60), if client < 4 { Ok(()) } else { Err(BudgetExceeded::All) });
            assert_eq!(
                other.resize(41),
                Err([BudgetExceeded::Client, BudgetExceeded::All][usize::from(client == 4)])
            );
            let left = if client < 4 { 40 } else { 0 };
            assert_eq!((other.left(), other.held()), (left, 0));
            assert_eq!(other.resize(left), Ok(()));
            rooms.extend([one, other]);
        }
        assert_eq!(budget.held(), 400);
        let mut nobody = budget.room();
        assert_eq!(nobody.resize(1), Err(BudgetExceeded::All));
        assert_eq!(rooms[0].resize(10), Ok(()));
        assert_eq!((nobody.resize(50), budget.held()), (Ok(()), 400));
        rooms.clear();
        assert_eq!(nobody.resize(350), Ok(()));
        drop(nobody);
        assert_eq!(budget.held(), 0);
        let _one = budget.share(Some(9));
        assert_eq!(budget.clients.lock().unwrap().len(), 1);
    }

    #[test]
    fn bytes_keep_their_room_until_their_last_copy_is_dropped() {
        let budget = budget(40_000);
        let mut room = budget.room();
        assert_eq!(room.resize(30_000), Ok(()));
        let all = room.keep_for(Bytes::from(vec![7; 30_000]));
        let part = all.slice(10..KEPT_MIN + 10);
        let copy = in_room_of(part.clone(), Bytes::from_static(b"copy"));
        drop((all, part));
        assert_eq!((budget.held(), &copy[..]), (30_000, &b"copy"[..]));
        drop(copy);
        assert_eq!(budget.held(), 0);
    }
}
