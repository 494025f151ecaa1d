//! The tools beside the proxy, one file or folder each.

mod check_client;
mod check_progress;
mod check_proxy;
mod demo;
pub(crate) mod doctor;
mod playground;
pub(crate) mod recordings;
