//! The commands, one file or folder each; `wrap` and `serve` have their tests in `stdio` and `http`.

mod adopt;
mod check;
mod check_progress;
mod demo;
mod doctor;
mod presets;
pub(crate) mod route_files;
mod upgrade;
