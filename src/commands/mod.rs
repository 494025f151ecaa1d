//! The commands: each takes its arguments, and returns its output or an exit code.
pub mod adopt;
pub mod args;
pub mod cancel;
pub mod check;
mod columns;
pub mod completions;
pub mod help;
pub mod init;
pub mod ls;
pub mod man;
pub mod presets;
pub mod program;
pub mod show_calls;
pub mod sites;
pub mod stats;
pub mod tap;
pub mod top;
pub mod wrap;
