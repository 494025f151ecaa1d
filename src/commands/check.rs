//! `milepost check`: prints the errors of a route file or each route's server, and imports a client's file.

use std::ffi::OsString;

use serde_json::{Value, json};

use crate::commands::args::CheckArgs;
use crate::config::routes;
use crate::config::routes::{ConfigFault, Routes, RoutesError, Severity};
use crate::observe::durations::{state_dir, state_dir_warning};
use crate::observe::error_chain::error_chain;
use crate::observe::printable::{TextForm, printable};

/// The output of `milepost check`.
#[derive(Debug)]
pub struct CheckOutput {
    /// The text for standard output.
    pub text: String,
    /// Warnings for standard error.
    pub warnings: Vec<ConfigFault>,
    /// Whether the file can be used.
    pub is_usable: bool,
}

impl CheckOutput {
    fn of(text: String, warnings: Vec<ConfigFault>) -> Self {
        Self { text, warnings, is_usable: true }
    }
}

/// Reads the file, and returns the output.
///
/// # Errors
///
/// If the file cannot be read or has an error. With `--json` the errors are in the output.
pub fn run(args: &CheckArgs) -> Result<CheckOutput, RoutesError> {
    if let Some(file) = &args.import {
        return Ok(CheckOutput::of(routes::import(file)?, Vec::new()));
    }
    let routes = Routes::load(args.file())
        .and_then(|all| all.with_strict_files(args.strict_files))
        .and_then(Routes::not_empty);
    if args.json {
        return Ok(json_output(args, &routes));
    }
    let routes = routes?;
    let warnings = warnings(args, &routes);
    if args.print {
        return Ok(CheckOutput::of(routes.print(), warnings));
    }
    let names: Vec<OsString> = std::env::vars_os().map(|(name, _)| name).collect();
    let left_out = routes.left_out(names.into_iter());
    Ok(CheckOutput::of(routes.list() + &left_out, warnings))
}

/// Returns the warnings about a usable file, and about the state directory that `serve` would use.
fn warnings(args: &CheckArgs, routes: &Routes) -> Vec<ConfigFault> {
    let state = state_dir(None, routes.state()).and_then(|folder| state_dir_warning(&folder));
    let state = state.map(|why| ConfigFault::of_file(args.file(), why));
    routes.warnings().into_iter().chain(state).collect()
}

/// Returns errors and warnings as a JSON list of objects.
fn json_output(args: &CheckArgs, routes: &Result<Routes, RoutesError>) -> CheckOutput {
    let faults: Vec<Value> = match routes {
        Ok(routes) => warnings(args, routes).iter().map(fault_json).collect(),
        Err(RoutesError::Invalid(faults)) => faults.all().iter().map(fault_json).collect(),
        Err(error) => vec![json!({
            "file": args.file().display().to_string(),
            "line": null,
            "column": null,
            "key": null,
            "message": error_chain(error),
            "severity": "error",
        })],
    };
    // Characters that could control a terminal are escaped, even if JSON allows them unescaped. The line breaks are
    // formatting and stay.
    let lines = format!("{:#}", Value::from(faults));
    let text = lines
        .lines()
        .fold(String::new(), |out, line| out + &printable(line, TextForm::Json) + "\n");
    CheckOutput { text, warnings: Vec::new(), is_usable: routes.is_ok() }
}

fn fault_json(fault: &ConfigFault) -> Value {
    json!({
        "file": fault.file.display().to_string(),
        "line": fault.line,
        "column": fault.column,
        "key": fault.key,
        "message": fault.message,
        "severity": match fault.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
    })
}
