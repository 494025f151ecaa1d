//! The synchronisation primitives for state that tasks share. `tests/models` replaces them to try every order in which
//! threads can run.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use futures::task::AtomicWaker;
