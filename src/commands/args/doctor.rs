//! The command line of `milepost doctor`.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, Value};

use super::remote::{RemoteArgs, at_address, bearer_in};
use super::{WrapError, address};
use crate::commands::doctor::{DoctorTarget, Options, RequestedCall, SessionArgs};
use crate::transport::child::Program;

/// `milepost doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The tool to call; without this option no tool is called
    #[arg(long, value_name = "NAME")]
    call: Option<String>,
    /// The arguments of the tool, a JSON object
    #[arg(long, value_name = "JSON", requires = "call", default_value = "{}", value_parser = arguments)]
    args: Arguments,
    /// Call it twice at once
    #[arg(long, requires = "call")]
    concurrent: bool,
    /// Call it once more, without a progress token
    #[arg(long, requires = "call")]
    without_token: bool,
    /// Make no further call if a call stays silent; otherwise one is made with the token in its arguments
    #[arg(long, requires = "call")]
    once: bool,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten, next_help_heading = "Server at an address")]
    remote: RemoteArgs,
    /// The server's command and its arguments, or its address (`http://…`, `https://…`)
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD|URL")]
    command: Vec<OsString>,
}

/// The arguments of a call.
#[derive(Debug, Clone)]
pub(super) struct Arguments(pub(super) Map<String, Value>);

pub(super) fn arguments(text: &str) -> Result<Arguments, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(Arguments(arguments)),
        Ok(_) => Err("a JSON object such as {\"path\":\"src\"} is expected".to_owned()),
        Err(error) => Err(format!("no JSON: {error}")),
    }
}

impl DoctorArgs {
    /// The options from the arguments.
    ///
    /// # Errors
    /// If something stands behind an address, or headers are none.
    pub fn resolve(self) -> Result<Options, WrapError> {
        let server = target(&self.remote, self.command)?;
        let call = self.call.map(|tool| RequestedCall {
            tool,
            arguments: self.args.0,
            concurrent: self.concurrent,
            without_token: self.without_token,
            once: self.once,
        });
        Ok(Options { server, call, session: self.session })
    }
}

/// The server of a command line: a command, or an address with its headers.
pub(super) fn target(
    remote: &RemoteArgs,
    command: Vec<OsString>,
) -> Result<DoctorTarget, WrapError> {
    let Some(url) = address(&command)? else {
        if remote.is_given() {
            return Err(WrapError::NoAddress);
        }
        return Ok(DoctorTarget::Command(Program { command, ..Program::default() }));
    };
    let mut route = at_address(url.clone(), remote.transport(), None);
    remote.apply(&mut route.request_headers)?;
    if let Some(file) = &remote.bearer_file() {
        route.request_headers.set.push(bearer_in(file)?);
    }
    Ok(DoctorTarget::Http(Box::new(route), url))
}
