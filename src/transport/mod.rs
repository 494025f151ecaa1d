//! Reads and writes bytes: Milepost's standard streams, child processes, HTTP.
pub mod browser;
pub mod byte_budget;
pub(crate) mod clock;
pub mod http;
pub mod local_socket;
pub mod mcp_http;
pub(crate) mod random;
pub(crate) mod sealing;
pub mod spill;
pub mod stdio;
pub(crate) mod sync;
pub(crate) mod tasks;

pub use crate::platform::child;
