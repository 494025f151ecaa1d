//! `milepost check`: the errors of a route file, or the server of each route, and the import of a
//! client's file.

use crate::commands::args::CheckArgs;
use crate::config::routes;
use crate::config::routes::{Routes, RoutesError};

/// The output of `milepost check`.
///
/// # Errors
/// If the file cannot be read or the file has an error.
pub fn run(args: &CheckArgs) -> Result<String, RoutesError> {
    if let Some(file) = &args.import {
        return routes::import(file);
    }
    let routes = Routes::load(&args.file)?;
    if args.print {
        return Ok(routes.print());
    }
    let list = routes.list();
    let is_empty = list.is_empty();
    Ok(if is_empty { format!("{}: no routes\n", args.file.display()) } else { list })
}
