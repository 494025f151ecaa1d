//! The command line of `milepost check-progress`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::WrapError;
use super::doctor::{Arguments, arguments, target};
use super::remote::RemoteArgs;
use crate::config::values::positive_time;
use crate::lab::check_progress::client::{ClientTerms, ReportSource};
use crate::lab::check_progress::proxy::{ProxyTemplate, ProxyTerms};
use crate::lab::check_progress::scenarios::Scenario;
use crate::lab::check_progress::{CheckProgressOptions, CheckedProgram};
use crate::lab::color::ColorChoice;
use crate::lab::doctor::{Options, RequestedCall, SessionArgs, revision};
use crate::protocol::mcp::Revision;

/// `milepost check-progress`.
#[derive(Debug, Args)]
pub struct CheckProgressArgs {
    /// Print the scenarios; no program is needed
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
    /// The longest wait for an answer, and for one run of a driver
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time)]
    timeout: Duration,
    /// The longest time during a call without a message to the client; for a client the duration of a
    /// silent call [default for a client: 3s]
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    silence: Option<Duration>,
    /// Ask for this revision alone [default: each revision that the server speaks; 2025-11-25 of a proxy]. The
    /// reference server speaks 2026-07-28 only with `--revision 2026-07-28`
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
    #[command(flatten, next_help_heading = "Proxies and clients")]
    others: OtherPrograms,
    #[command(flatten, next_help_heading = "Server at an address")]
    remote: RemoteArgs,
    /// The server's command and its arguments, or its address (`http://…`, `https://…`)
    #[arg(required_unless_present_any = ["list", "proxy", "client", "serve"], trailing_var_arg = true, value_name = "CMD|URL")]
    command: Vec<OsString>,
}

/// Programs other than servers.
#[derive(Debug, Args)]
struct OtherPrograms {
    /// Judge a proxy: its command line for a shell, behind its address if it listens. `{server}` stands for
    /// the command of the reference server, `{url}` and `{sse}` for its address, `{port}` for a free port;
    /// repeat for each pair of transports
    #[arg(long, value_name = "[URL] CMD", conflicts_with_all = ["command", "call", "client", "serve"])]
    proxy: Vec<ProxyTemplate>,
    /// Make calls of this length through the proxy too
    #[arg(long, value_name = "TIME", requires = "proxy", value_parser = positive_time)]
    long: Option<Duration>,
    /// Judge a client, by the report of a driver or of an operator
    #[arg(long, conflicts_with_all = ["command", "call", "serve", "revision"])]
    client: bool,
    /// The command line of the driver for a shell, with `{server}`, `{url}`, `{sse}` and `{tool}`; the driver
    /// writes its report to standard output
    #[arg(long, value_name = "CMD", requires = "client")]
    driver: Option<String>,
    /// Judge the report in this file
    #[arg(long, value_name = "FILE", requires = "client", conflicts_with = "driver")]
    report: Option<PathBuf>,
    /// Serve the reference server, on standard streams or with --listen over HTTP
    #[arg(long, conflicts_with_all = ["command", "call", "only", "json", "junit", "sarif"])]
    serve: bool,
    /// The address of the reference server over HTTP [default for a client: 127.0.0.1 and a free port]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Append what reaches the reference server to this file
    #[arg(long, value_name = "FILE", requires = "serve")]
    notes: Option<PathBuf>,
}

/// What `check-progress` does.
#[derive(Debug)]
pub enum CheckProgressTask {
    /// Judges a program.
    Judge(CheckProgressOptions),
    /// Runs the reference server.
    Serve(ReferenceOptions),
}

/// The options of the reference server.
#[derive(Debug)]
pub struct ReferenceOptions {
    /// The address to listen on; `None` for standard input and output.
    pub listen: Option<SocketAddr>,
    /// The file for notes.
    pub notes: Option<PathBuf>,
    /// How long the tool `silent` takes.
    pub silence: Duration,
    /// Whether 2026-07-28 is supported too.
    pub is_modern: bool,
}

/// Returns the loopback address with port 0, for which the system chooses a free port.
fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn scenario() -> impl TypedValueParser<Value = Scenario> {
    let ids = Scenario::ALL.map(Scenario::id);
    PossibleValuesParser::new(ids)
        .try_map(|id| Scenario::find(&id).ok_or("not a scenario; --list prints them"))
}

impl CheckProgressArgs {
    /// Returns the task that the arguments request.
    ///
    /// # Errors
    /// If a word follows the URL, a header is not valid, or no scenario remains.
    pub fn resolve(self) -> Result<CheckProgressTask, WrapError> {
        let silence = |usual: u64| self.silence.unwrap_or_else(|| Duration::from_secs(usual));
        if self.others.serve {
            let (listen, notes, silence) = (self.others.listen, self.others.notes, silence(3));
            let is_modern = self.revision == Some(Revision::V2026_07_28.date());
            let options = ReferenceOptions { listen, notes, silence, is_modern };
            return Ok(CheckProgressTask::Serve(options));
        }
        let (only, json) = (self.only, self.json);
        let (junit, sarif) = (self.junit, self.sarif);
        let checked = if !self.others.proxy.is_empty() {
            CheckedProgram::Proxy(ProxyTerms {
                templates: self.others.proxy,
                timeout: self.timeout,
                long: self.others.long,
                revision: self.revision.unwrap_or_else(|| Revision::V2025_11_25.date()),
            })
        } else if self.others.client {
            let source = match (self.others.driver, self.others.report) {
                (Some(driver), _) => ReportSource::Driver(driver),
                (None, Some(file)) => ReportSource::File(file),
                (None, None) => ReportSource::Operator,
            };
            let listen = self.others.listen.unwrap_or_else(loopback);
            let (silence, timeout) = (silence(3), self.timeout);
            CheckedProgram::Client(ClientTerms { source, listen, silence, timeout })
        } else {
            let server = target(&self.remote, self.command)?;
            let call = self.call.map(|tool| RequestedCall {
                tool,
                arguments: self.args.0,
                concurrent: !self.once,
                without_token: !self.once,
                once: self.once,
                yes: true,
            });
            let session = SessionArgs {
                through: false,
                timeout: self.timeout,
                silence: silence(11),
                revision: self.revision,
                client: None,
                json: false,
                color: ColorChoice::Never,
            };
            CheckedProgram::Server(Box::new(Options { server, call, session, configured: None }))
        };
        let all = || Scenario::of_subject(checked.subject());
        let only = match only.is_empty() {
            true => all().collect(),
            false => only,
        };
        if !all().any(|scenario| only.contains(&scenario)) {
            let kind = checked.subject().name();
            return Err(WrapError::Setting(format!("--only names no scenario of a {kind}")));
        }
        Ok(CheckProgressTask::Judge(CheckProgressOptions { checked, only, json, junit, sarif }))
    }
}
