//! The implementation for Linux, macOS and similar systems.

mod descriptors;
pub mod desktop;
pub mod files;
mod parent_death;
pub(super) mod process;
mod process_tree;
pub mod service;
mod shared_scan;
pub mod signals;
pub mod sockets;
pub mod streams;
pub mod terminal;
