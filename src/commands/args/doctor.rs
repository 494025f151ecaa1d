//! The command line of `milepost doctor`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Map, Value};

use super::remote::{RemoteArgs, at_address, bearer_in};
use super::{WrapError, address};
use crate::config::routes::{BearerFile, Routes, Upstream};
use crate::lab::doctor::{ConfiguredRoute, DoctorTarget, Options, RequestedCall, SessionArgs};
use crate::transport::child::Program;

/// `milepost doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Judge by the named scenarios of `milepost check-progress` instead, in each revision of the server
    #[arg(long, conflicts_with_all = ["concurrent", "without_token", "config", "through", "client"])]
    pub suite: bool,
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
    /// Make no further call, with another token, where a call stays silent or fails
    #[arg(long, requires = "call")]
    once: bool,
    /// Do not ask on the terminal before calls of a tool that has no `readOnlyHint`
    #[arg(long, requires = "call")]
    yes: bool,
    /// Examine the server of a route of this file, without and with the settings of the route
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    config: Option<PathBuf>,
    /// The path of that route, if the file has several
    #[arg(long, value_name = "PATH", requires = "config")]
    route: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten, next_help_heading = "Server at an address")]
    remote: RemoteArgs,
    /// The server's command and its arguments, or its address (`http://…`, `https://…`)
    #[arg(required_unless_present = "config", trailing_var_arg = true, value_name = "CMD|URL")]
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
    /// Returns the options that the arguments request.
    ///
    /// # Errors
    /// If a word follows the URL, or a header is not valid.
    pub fn resolve(self) -> Result<Options, WrapError> {
        let configured = match &self.config {
            Some(file) => Some(configured(file, self.route.as_deref())?),
            None => None,
        };
        let server = match &configured {
            Some(configured) => self.target_of(configured)?,
            None => target(&self.remote, self.command)?,
        };
        let call = self.call.map(|tool| RequestedCall {
            tool,
            arguments: self.args.0,
            concurrent: self.concurrent,
            without_token: self.without_token,
            once: self.once,
            yes: self.yes,
        });
        Ok(Options { server, call, session: self.session, configured })
    }

    /// Returns the server of a route.
    fn target_of(&self, configured: &ConfiguredRoute) -> Result<DoctorTarget, WrapError> {
        let route = configured.routes.find(None)?;
        match &route.upstream {
            Upstream::Command(_) if self.remote.is_given() => Err(WrapError::NoAddress),
            Upstream::Command(stdio) => {
                let (command, env, cwd) =
                    (stdio.command.clone(), stdio.env.clone(), stdio.cwd.clone());
                Ok(DoctorTarget::Command(Program { command, env, cwd, ..Program::default() }))
            }
            Upstream::Http(http) => {
                let url = http.url.clone().or_else(|| http.sse.clone());
                let url = url.ok_or_else(|| no_server(&route.path))?;
                let mut route = route.clone();
                self.remote.apply(&mut route)?;
                Ok(DoctorTarget::Http(Box::new(route), url))
            }
            Upstream::Demo => Err(no_server(&route.path)),
        }
    }
}

/// Returns a route of a route file.
fn configured(file: &Path, route: Option<&str>) -> Result<ConfiguredRoute, WrapError> {
    let routes = Routes::load(file)?.only(route)?;
    let path = routes.find(None)?.path.clone();
    Ok(ConfiguredRoute { routes, path })
}

fn no_server(path: &str) -> WrapError {
    let what = "a route with upstream.command, upstream.url or upstream.sse is expected";
    WrapError::Setting(format!("--route: {path} has no server to examine; {what}"))
}

/// Returns the server of a command line: a command, or a URL with its headers.
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
    remote.apply(&mut route)?;
    if let Some(file) = &remote.bearer_file() {
        let (name, token) = bearer_in(file)?;
        let rules = &mut route.request_headers;
        rules.set.push((name.clone(), token));
        // Read the file again for each request: the token may expire, and a program writes a new one.
        rules.bearer_files.push((name, Arc::new(BearerFile::in_file(file.clone()))));
    }
    Ok(DoctorTarget::Http(Box::new(route), url))
}
