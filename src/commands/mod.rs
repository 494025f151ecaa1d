//! The commands of the program, and their arguments.
pub mod adopt;
pub mod args;
pub mod check;
pub mod check_progress;
pub mod color;
pub mod demo;
pub mod doctor;
pub mod init;
mod known_names;
pub mod man;
pub mod presets;
mod printable;
pub mod program;
pub mod replay;
pub mod stats;
pub mod tap;
pub mod wrap;
