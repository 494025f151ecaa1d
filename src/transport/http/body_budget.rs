//! The bytes of all requests whose bodies are not whole yet, and their limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::transport::http::request_body::RequestBodyError;

/// Bytes that unfinished bodies of requests hold together, in memory and in files.
#[derive(Debug, Default)]
pub(crate) struct BodyBudget {
    held: AtomicU64,
    max: AtomicU64,
}

impl BodyBudget {
    /// Sets the limit, in bytes. What is held already stays.
    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Room for one body, which has no bytes yet.
    pub(crate) fn room(self: &Arc<Self>) -> BodyRoom {
        BodyRoom { budget: Arc::clone(self), bytes: 0 }
    }
}

/// The bytes of one body, until the room is dropped.
#[derive(Debug)]
pub(crate) struct BodyRoom {
    budget: Arc<BodyBudget>,
    bytes: u64,
}

impl BodyRoom {
    /// Takes room for so many more bytes.
    ///
    /// # Errors
    /// If all bodies would have more bytes than they may.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), RequestBodyError> {
        let bytes = bytes as u64;
        let before = self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        let fits = before + bytes <= self.budget.max.load(Ordering::Relaxed);
        fits.then_some(()).ok_or(RequestBodyError::NoRoom)
    }
}

impl Drop for BodyRoom {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
