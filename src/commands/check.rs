//! `milepost check`: the errors of a route file, or the server of each route, and the import of a
//! client's file.

use std::ffi::OsString;

use crate::commands::args::CheckArgs;
use crate::config::routes;
use crate::config::routes::{Routes, RoutesError};

/// The output of `milepost check`.
#[derive(Debug, Default)]
pub struct CheckOutput {
    /// The text for standard output.
    pub text: String,
    /// Warnings for standard error.
    pub warnings: Vec<String>,
}

/// Reads the file, and makes the output.
///
/// # Errors
/// If the file cannot be read or the file has an error.
pub fn run(args: &CheckArgs) -> Result<CheckOutput, RoutesError> {
    if let Some(file) = &args.import {
        return Ok(CheckOutput { text: routes::import(file)?, warnings: Vec::new() });
    }
    let routes = Routes::load(args.file())?.with_strict_files(args.strict_files)?;
    let warnings = routes.warnings();
    if args.print {
        return Ok(CheckOutput { text: routes.print(), warnings });
    }
    let list = routes.list();
    let is_empty = list.is_empty();
    let text = if is_empty { format!("{}: no routes\n", args.file().display()) } else { list };
    let left_out = routes.left_out(env_names().into_iter());
    Ok(CheckOutput { text: text + &left_out, warnings })
}

/// The names of the variables of this process.
fn env_names() -> Vec<OsString> {
    std::env::vars_os().map(|(name, _)| name).collect()
}
