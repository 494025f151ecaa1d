//! The command line of `milepost check-progress`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::WrapError;
use super::doctor::{Arguments, arguments, target};
use super::remote::RemoteArgs;
use crate::commands::check_progress::CheckProgressOptions;
use crate::commands::check_progress::scenarios::Scenario;
use crate::commands::color::ColorChoice;
use crate::commands::doctor::{Options, RequestedCall, SessionArgs, revision};
use crate::config::values::positive_time;

/// `milepost check-progress`.
#[derive(Debug, Args)]
pub struct CheckProgressArgs {
    /// Print the scenarios; no server is needed
    #[arg(long, exclusive = true)]
    pub list: bool,
    /// Judge these scenarios alone, by their ids; repeat, or separate with commas
    #[arg(long, value_name = "ID", value_delimiter = ',', hide_possible_values = true, value_parser = scenario())]
    only: Vec<Scenario>,
    /// The tool to call; without this option no tool is called
    #[arg(long, value_name = "NAME")]
    call: Option<String>,
    /// The arguments of the tool, a JSON object
    #[arg(long, value_name = "JSON", requires = "call", default_value = "{}", value_parser = arguments)]
    args: Arguments,
    /// Make one call in each revision, instead of two at once and one without a progress token
    #[arg(long, requires = "call")]
    once: bool,
    /// The longest wait for an answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time)]
    timeout: Duration,
    /// The longest time during a call without a message to the client
    #[arg(long, value_name = "TIME", default_value = "11s", value_parser = positive_time)]
    silence: Duration,
    /// Ask for this revision alone [default: each revision that the server speaks]
    #[arg(long, value_name = "DATE", value_parser = revision())]
    revision: Option<&'static str>,
    /// Report in JSON, on one line (docs/check-progress.md)
    #[arg(long)]
    json: bool,
    /// Write the report to this file too, as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the report to this file too, as SARIF 2.1.0
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Server at an address")]
    remote: RemoteArgs,
    /// The server's command and its arguments, or its address (`http://…`, `https://…`)
    #[arg(required_unless_present = "list", trailing_var_arg = true, value_name = "CMD|URL")]
    command: Vec<OsString>,
}

fn scenario() -> impl TypedValueParser<Value = Scenario> {
    let ids = Scenario::ALL.map(Scenario::id);
    PossibleValuesParser::new(ids)
        .try_map(|id| Scenario::find(&id).ok_or("not a scenario; --list prints them"))
}

impl CheckProgressArgs {
    /// The options from the arguments.
    ///
    /// # Errors
    /// If something stands behind an address, or headers are none.
    pub fn resolve(self) -> Result<CheckProgressOptions, WrapError> {
        let server = target(&self.remote, self.command)?;
        let call = self.call.map(|tool| RequestedCall {
            tool,
            arguments: self.args.0,
            concurrent: !self.once,
            without_token: !self.once,
            once: self.once,
        });
        let session = SessionArgs {
            through: false,
            timeout: self.timeout,
            silence: self.silence,
            revision: self.revision,
            client: None,
            json: false,
            color: ColorChoice::Never,
        };
        let only = if self.only.is_empty() { Scenario::ALL.to_vec() } else { self.only };
        Ok(CheckProgressOptions {
            doctor: Options { server, call, session, configured: None },
            only,
            json: self.json,
            junit: self.junit,
            sarif: self.sarif,
        })
    }
}
