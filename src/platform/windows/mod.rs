//! The implementation for Windows.

pub mod desktop;
pub mod files;
pub(super) mod process;
pub mod service;
pub mod signals;
pub mod sockets;
pub mod streams;
pub mod terminal;
