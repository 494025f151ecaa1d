//! The tools beside the proxy: they examine and judge servers, and record and replay conversations. No lower layer uses
//! them.
pub mod check_progress;
pub mod color;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod export;
pub(crate) mod known_names;
mod local_http;
pub mod mock;
pub mod recordings;
pub mod reference;
pub mod replay;
mod sides;
