//! The commands of the program, and their arguments.
pub mod adopt;
pub mod args;
pub mod check;
pub mod check_progress;
pub mod color;
pub mod demo;
pub mod doctor;
pub mod man;
pub mod presets;
mod printable;
pub mod program;
pub mod replay;
pub mod show_calls;
pub mod sites;
pub mod stats;
pub mod tap;
pub mod top;
pub mod wrap;
