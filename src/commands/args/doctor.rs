//! The command line of `milepost doctor`.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde_json::{Map, Value};

use super::remote::{RemoteArgs, at_address};
use super::{WrapError, address};
use crate::commands::doctor::{Ask, Options, Place};
use crate::config::values::positive_time;
use crate::protocol::mcp::Revision;
use crate::transport::child::Program;

/// `milepost doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// The tool to call; without it only what comes before a call is looked at
    #[arg(long, value_name = "NAME")]
    call: Option<String>,
    /// Its arguments, a JSON object
    #[arg(long, value_name = "JSON", requires = "call", default_value = "{}", value_parser = arguments)]
    args: Arguments,
    /// Call it twice at once
    #[arg(long, requires = "call")]
    concurrent: bool,
    /// Call it once more, without a progress token
    #[arg(long, requires = "call")]
    without_token: bool,
    /// Do the same again through the proxy, with the lines that are suggested, and compare
    #[arg(long)]
    through: bool,
    /// How long any answer is waited for
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time)]
    timeout: Duration,
    /// The longest time during a call in which a client may be told nothing
    #[arg(long, value_name = "TIME", default_value = "11s", value_parser = positive_time)]
    silence: Duration,
    /// Ask for this revision alone [default: ask for all, call in the newest with a handshake]
    #[arg(long, value_name = "DATE", value_parser = revision())]
    revision: Option<&'static str>,
    /// Pose as the client of this name (`clientInfo.name`), and tell what is known of it
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Report in JSON, on one line (docs/doctor.md)
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Server at an address")]
    remote: RemoteArgs,
    /// The server's command and its arguments, or its address (`http://…`, `https://…`)
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD|URL")]
    command: Vec<OsString>,
}

/// The arguments of a call.
#[derive(Debug, Clone)]
struct Arguments(Map<String, Value>);

fn arguments(text: &str) -> Result<Arguments, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(Arguments(arguments)),
        Ok(_) => Err("a JSON object such as {\"path\":\"src\"} is expected".to_owned()),
        Err(error) => Err(format!("no JSON: {error}")),
    }
}

fn revision() -> impl TypedValueParser<Value = &'static str> {
    let dates = Revision::ALL.map(|(_, date)| date);
    PossibleValuesParser::new(dates).try_map(move |said| {
        dates.into_iter().find(|date| *date == said).ok_or("no revision of the specification")
    })
}

impl Doctor {
    /// The options from the arguments.
    ///
    /// # Errors
    /// If something stands behind an address, or headers are none.
    pub fn resolve(self) -> Result<Options, WrapError> {
        let server = match address(&self.command)? {
            Some(url) => {
                let mut route = at_address(url.clone(), self.remote.transport(), None);
                self.remote.apply(&mut route.request_headers)?;
                if let Some(file) = &self.remote.bearer_file() {
                    let wrong =
                        |why: String| WrapError::BearerFile(format!("{}: {why}", file.display()));
                    let token = fs::read_to_string(file).map_err(|why| wrong(why.to_string()))?;
                    let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
                    let mut header = header.map_err(|_| wrong("it holds no token".to_owned()))?;
                    header.set_sensitive(true);
                    route.request_headers.set.push((AUTHORIZATION, header));
                }
                Place::Http(Box::new(route), url)
            }
            None if !self.remote.is_given() => {
                Place::Command(Program { command: self.command, ..Program::default() })
            }
            None => return Err(WrapError::NoAddress),
        };
        let call = self.call.map(|tool| Ask {
            tool,
            arguments: self.args.0,
            concurrent: self.concurrent,
            without_token: self.without_token,
        });
        Ok(Options {
            server,
            call,
            revision: self.revision,
            timeout: self.timeout,
            through: self.through,
            json: self.json,
            client: self.client,
            silence: self.silence,
        })
    }
}
