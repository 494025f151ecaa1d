//! The commands, one file or folder each; `wrap` and `serve` have their tests in `stdio` and `http`.

mod adopt;
mod check;
mod ls;
mod policy_files;
mod presets;
pub(crate) mod route_files;
pub(crate) mod schema;
mod upgrade;
