//! The parts of what tasks share. `tests/models` puts others in their place, and plays every order in
//! which threads can use them.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use futures::task::AtomicWaker;
