//! The commands, one file or folder each; `wrap` and `serve` have their tests in `stdio` and `http`.

mod adopt;
mod check;
mod check_client;
mod check_progress;
mod check_proxy;
mod demo;
pub(crate) mod doctor;
mod playground;
mod policy_files;
mod presets;
pub(crate) mod recordings;
pub(crate) mod route_files;
mod schema;
mod upgrade;
