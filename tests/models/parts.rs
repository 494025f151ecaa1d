//! The parts in place of those of the product.

use std::task::Waker;

use bytes::Bytes;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub(crate) use loom::sync::{Mutex, MutexGuard};

pub(crate) const BATCH_BYTES: usize = 16 << 10;

/// The waker of `futures`, as it is seen from outside: the newest waker is woken, once.
#[derive(Debug, Default)]
pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn register(&self, waker: &Waker) {
        let before = self.0.lock().unwrap().replace(waker.clone());
        drop(before);
    }

    pub(crate) fn wake(&self) {
        let waker = self.0.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The bytes of a response.
#[derive(Default)]
pub(crate) struct Batch(pub(crate) Vec<u8>);

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= BATCH_BYTES
    }

    pub(crate) fn raw(&mut self, bytes: &Bytes) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn take(&mut self) -> Option<Bytes> {
        (!self.0.is_empty()).then(|| std::mem::take(&mut self.0).into())
    }
}

pub(crate) fn on_one_line(chunk: Bytes) -> Bytes {
    chunk
}
