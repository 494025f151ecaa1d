//! The command lines of `milepost try` and `milepost demo`.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;

use super::doctor::{Arguments, arguments};
use super::policy::PolicyArgs;
use super::record::RecordArgs;
use super::remote::RemoteArgs;
use super::{LogArgs, WrapArgs, WrapError, Wrapped};
use crate::config::routes::ConfigFault;
use crate::config::values::{StateDir, positive_time, time};
use crate::lab::color::ColorChoice;
use crate::lab::doctor::playground::Playground;
use crate::observe::log::LogFormat;

/// `milepost demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The time that the silent tool is silent
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = time)]
    pub silence: Duration,
}

/// `milepost try`.
#[derive(Debug, Args)]
pub struct TryArgs {
    /// The tool to call [default: asked for in a terminal]
    #[arg(long, value_name = "NAME")]
    call: Option<String>,
    /// The arguments of the tool, a JSON object
    #[arg(long, value_name = "JSON", requires = "call", default_value = "{}", value_parser = arguments)]
    args: Arguments,
    /// The longest wait for an answer
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = positive_time)]
    timeout: Duration,
    /// Colours of the output
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    color: ColorChoice,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten, next_help_heading = "Server at an address")]
    remote: RemoteArgs,
    /// The server's command and its arguments, or its address (`http://…`, `https://…`)
    #[arg(required_unless_present = "config", trailing_var_arg = true, value_name = "CMD|URL")]
    command: Vec<OsString>,
}

impl TryArgs {
    /// Returns the server with the settings of `wrap`, and the call; and warnings about the route file.
    ///
    /// # Errors
    /// If the route file cannot be used, or does not fit the arguments.
    pub fn resolve(self) -> Result<(Playground, Vec<ConfigFault>), WrapError> {
        let call = self.call.map(|tool| (tool, self.args.0));
        let wrap = WrapArgs {
            policy: self.policy,
            remote: self.remote,
            // Do not learn durations from calls that a user only tries.
            state_dir: Some(StateDir::Off),
            strict_files: false,
            page: false,
            no_socket: true,
            record: RecordArgs::default(),
            log: LogArgs { log_level: tracing::Level::ERROR, log_format: LogFormat::default() },
            command: self.command,
        };
        let (timeout, colors) = (self.timeout, self.color.palette());
        let Wrapped { policy, server, warnings, .. } = wrap.resolve()?;
        let is_asked = io::stdin().is_terminal() && io::stdout().is_terminal();
        Ok((Playground { policy, server, call, timeout, colors, is_asked }, warnings))
    }
}
