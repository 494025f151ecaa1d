//! The command line: the arguments as typed, and the checked options made from them.

mod admin;
mod adopt;
mod cancel;
mod check_progress;
mod doctor;
mod playground;
mod policy;
mod record;
mod remote;
mod tap;

use std::ffi::OsString;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use tracing::Level;
use url::Url;

use self::policy::PolicyArgs;
use self::record::RecordArgs;
use self::remote::{RemoteArgs, at_address, bearer_in};
use crate::commands::init::InitArgs;
use crate::commands::show_calls::name_of_command;
use crate::commands::stats;
use crate::config::routes::{
    ConfigFault, Route, Routes, RoutesError, StdioUpstream, Upstream, WrappedServer,
};
use crate::config::values::StateDir;
use crate::lab::diff::DiffArgs;
use crate::lab::export::ExportArgs;
use crate::lab::mock::MockArgs;
use crate::observe::durations;
use crate::observe::log::{LogFormat, read_level};
use crate::observe::record::Recording;
use crate::progress::Policy;

pub use self::admin::{AdminAddress, AdminArgs};
pub use self::adopt::{AdoptArgs, CompletionsArgs, ManArgs};
pub use self::cancel::{CallToCancel, CancelArgs};
pub use self::check_progress::{CheckProgressArgs, CheckProgressTask, ReferenceOptions};
pub use self::doctor::DoctorArgs;
pub use self::playground::{DemoArgs, TryArgs};
pub use self::policy::PresetsArgs;
pub use self::record::ReplayArgs;
pub use self::remote::RemoteTransport;
pub use self::tap::{LsArgs, TapArgs, TopArgs};

/// The usual name of a route file.
pub(super) const ROUTE_FILE: &str = "proxy.toml";

/// A transparent MCP proxy that adds progress to legacy servers.
#[derive(Debug, Parser)]
#[command(
    name = "milepost",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  milepost wrap -- node reports-server.js   what your client starts in place of the server\n  \
        milepost try -- node reports-server.js    what the server sends, and what a client gets\n  \
        milepost adopt                            Milepost in front of all servers of your clients"
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Put Milepost in front of a server: write `milepost wrap --` before its command
    #[command(
        after_help = "All options, such as --late and --preset, and examples: milepost wrap --help",
        after_long_help = "Examples:\n  milepost wrap -- npx -y @modelcontextprotocol/server-everything\n  \
        milepost wrap --bearer-env TOKEN https://mcp.example.com/mcp\n\n\
        Standard output belongs to the protocol; what Milepost has to say is on standard error. \
        The exit code is the server's; with an address 0, or 1 if nobody ever answered there."
    )]
    Wrap(Box<WrapArgs>),
    /// Serve the routes of a file over HTTP
    Serve(ServeArgs),
    /// Print the errors of a route file, or the server of each route
    Check(CheckArgs),
    /// Report the faults of a server's progress, and their cures
    #[command(
        after_help = "Examples:\n  milepost doctor --call build --args '{\"target\":\"all\"}' --through -- node server.js\n  \
        milepost doctor --call report --timeout 5m https://mcp.example.com/mcp\n\n\
        The exit code is 0 if a plain client would be safe with the server, 1 if it would not, 2 if nothing \
        can be said."
    )]
    Doctor(Box<DoctorArgs>),
    /// Judge what a server, a proxy or a client does with progress, by named scenarios
    #[command(
        after_help = "Examples:\n  milepost check-progress --call build -- node server.js\n  \
        milepost check-progress --call build --junit progress.xml https://mcp.example.com/mcp\n  \
        milepost check-progress --proxy 'my-proxy -- {server}'\n  \
        milepost check-progress --proxy 'http://127.0.0.1:{port}/mcp my-proxy --port {port} --to {url}'\n  \
        milepost check-progress --client --driver 'node driver.mjs {url} {tool}'\n\n\
        A server is judged in each revision that it speaks; each call is a real call, with all its effects. The exit code is 0 if no scenario fails, 1 if \
        one fails, 2 if nothing can be said."
    )]
    CheckProgress(Box<CheckProgressArgs>),
    /// Say how long tools take, as far as that has been learned
    Stats(stats::Args),
    /// Play a recorded conversation again, and print the verdict on each message
    #[command(
        after_help = "The settings are those of the recording; flags override them, and with --config \
        those of the route file hold instead. The exit code is 0 if it comes out as it was recorded, \
        otherwise 1, and 2 for a file that is no recording."
    )]
    Replay(Box<ReplayArgs>),
    /// Write a recording as a HAR archive, or as one page for a browser
    #[command(
        after_help = "Examples:\n  milepost export conversation.transcript -o conversation.html\n  \
        milepost export --to har conversation.transcript > conversation.har\n\n\
        The exit code is 0, 1 if the export cannot be written, and 2 for a file that is no whole recording."
    )]
    Export(ExportArgs),
    /// Compare two recordings, call by call
    #[command(
        after_help = "A call of A is compared with the call of B that has the same method, tool and arguments, in \
        their order. The exit code is 0 if there is no difference, 1 if there is one, and 2 for a file that is no \
        whole recording."
    )]
    Diff(DiffArgs),
    /// Serve a recording as a server
    #[command(after_help = "Examples:\n  milepost mock --instant conversation.transcript\n  \
        milepost mock --listen 127.0.0.1:8100 conversation.transcript\n\n\
        A request of the same method and parameters gets what was recorded; each other request gets an error that \
        names the nearest one. It goes on until its input ends or a signal comes. The exit code is 0 if each request \
        was in the recording, 1 if not, and 2 for a file that is no whole recording.")]
    Mock(MockArgs),
    /// List the servers of your clients, wrapped or not, and the processes that run now
    #[command(after_help = "The exit code is 0, or 1 if a file of a client cannot be read.")]
    Ls(LsArgs),
    /// Show each message that passes through Milepost, with its verdict
    #[command(
        after_help = "Examples:\n  milepost tap --tool build\n  milepost tap --config proxy.toml --verdict withheld\n\n\
        Without an address it shows every `milepost wrap` of this user, and each `milepost serve` of this user \
        with an [admin] table. It goes on until Ctrl-C. The exit code is then 0; it is 1 if all of them end \
        first, and 2 if none can be asked."
    )]
    Tap(TapArgs),
    /// Show the calls that run now, in this terminal
    #[command(
        after_help = "Without an address it shows every `milepost wrap` of this user, and each `milepost serve` of \
        this user with an [admin] table; those that begin later appear by themselves. ? lists the keys."
    )]
    Top(TopArgs),
    /// Cancel an open call: its client gets an error, its server the cancellation
    #[command(after_help = "Examples:\n  milepost cancel 7 --reason 'it hangs'\n  \
        milepost cancel last --server server.js\n\n\
        `milepost cancel` alone lists the open calls with their numbers. The exit code is 0 if the call is \
        cancelled, 1 if it is not open, 2 if no call, or more than one, is meant.")]
    Cancel(CancelArgs),
    /// List the presets: settings for known servers
    Presets(PresetsArgs),
    /// Print the JSON Schema of route files
    Schema,
    /// Call tools of a server, and see what the server sends and what a client gets
    #[command(after_help = "Examples:\n  milepost try --call build -- node server.js\n  \
        milepost try --config proxy.toml --route /reports\n\n\
        In a terminal the arrows bring earlier lines back, TAB completes the name of a tool, Ctrl-D ends.\n\n\
        Each call is a real call, with all its effects. The exit code is 0 if every call is answered, 1 if \
        not, 2 if nothing can be called.")]
    Try(Box<TryArgs>),
    /// See it work: a legacy server, the proxy and a client in this terminal
    Demo(DemoArgs),
    /// Put Milepost in front of the servers of your clients, and take it out again
    #[command(
        after_help = "The files of Claude Desktop, Claude Code, Cursor, VS Code, Zed, Gemini CLI, Windsurf, \
        opencode and Codex are known: `mcpServers`, `servers`, `mcp.servers`, `context_servers`, `mcp`, \
        `mcp_servers`, or servers by their names alone; for goose the lines to write are shown. \
        What changes is shown first; comments, order and spacing stay. The file as it was is kept \
        beside it, as NAME.milepost-backup, or outside of a repository that shares the file."
    )]
    Adopt(AdoptArgs),
    /// Write a route file for a server, by asking or from arguments
    #[command(after_help = "Examples:\n  milepost init -- node reports-server.js\n  \
        milepost init --add --path /far https://mcp.example.com/mcp")]
    Init(InitArgs),
    /// Print the completions of `milepost` for a shell
    Completions(CompletionsArgs),
    /// Print the manual, or write it as pages
    Man(ManArgs),
    /// Print the version
    Version,
}

/// `milepost wrap`.
#[derive(Debug, Args)]
pub struct WrapArgs {
    #[command(flatten)]
    policy: PolicyArgs,
    /// The folder in which is kept how long tools take, or `off` [default: $XDG_STATE_HOME/milepost or
    /// ~/.local/state/milepost]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<StateDir>,
    /// Refuse a route file that names commands and that others may write
    #[arg(long, requires = "config")]
    strict_files: bool,
    /// Offer no local socket, by which `top`, `tap`, `ls` and `cancel` of this user reach the calls
    #[arg(long)]
    pub no_socket: bool,
    /// Serve the live page on loopback; its link is on standard error, and a browser opens where there is a
    /// desktop
    #[arg(long)]
    pub page: bool,
    #[command(flatten)]
    record: RecordArgs,
    /// The options of the log.
    #[command(flatten)]
    pub log: LogArgs,
    /// The server's command with its arguments, or its URL (Streamable HTTP or HTTP+SSE)
    #[arg(required_unless_present = "config", trailing_var_arg = true, value_name = "CMD|URL")]
    pub command: Vec<OsString>,
    #[command(flatten, next_help_heading = "Server at an address")]
    remote: RemoteArgs,
}

/// The options of the log.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The least important log lines that are written
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = read_level)]
    pub log_level: Level,
    /// The format of log lines
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub log_format: LogFormat,
}

/// `milepost serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    routes: RouteFileArgs,
    /// Threads that carry connections [default: half of the cores, at least one]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Refuse a route file that names commands and that others may write
    #[arg(long)]
    pub strict_files: bool,
    /// Offer no local socket, by which `top`, `tap`, `ls` and `cancel` of this user reach the calls
    #[arg(long)]
    pub no_socket: bool,
    #[command(flatten)]
    record: RecordArgs,
    /// The options of the log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// The route file of `serve` and `check`.
#[derive(Debug, Args)]
struct RouteFileArgs {
    /// The route file
    #[arg(value_name = "FILE", default_value = ROUTE_FILE)]
    file: PathBuf,
    /// The route file, as for the other commands
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl RouteFileArgs {
    fn path(&self) -> &Path {
        self.config.as_deref().unwrap_or(&self.file)
    }
}

impl ServeArgs {
    /// Returns the path of the route file.
    pub fn file(&self) -> &Path {
        self.routes.path()
    }

    /// Returns the settings of the recording, if conversations are recorded.
    pub fn recording(&self) -> Option<Recording> {
        self.record.recording()
    }
}

/// `milepost check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    routes: RouteFileArgs,
    /// Print every effective setting, with secrets as "***"
    #[arg(long)]
    pub print: bool,
    /// Print errors and warnings as JSON: a list of objects with file, line, column, key, message, severity
    #[arg(long, conflicts_with = "print")]
    pub json: bool,
    /// Refuse a route file that names commands and that others may write
    #[arg(long)]
    pub strict_files: bool,
    /// Print routes for the servers of a client's `mcpServers` file instead
    #[arg(long, value_name = "JSON", conflicts_with_all = ["file", "config", "print", "json", "strict_files"])]
    pub import: Option<PathBuf>,
}

impl CheckArgs {
    /// Returns the path of the route file.
    pub fn file(&self) -> &Path {
        self.routes.path()
    }
}

/// The program of `wrap`, and its settings.
#[derive(Debug)]
pub struct Wrapped {
    /// The settings of progress.
    pub policy: Policy,
    /// The server behind the proxy.
    pub server: WrappedServer,
    /// The label under which the durations of the server's tools are stored.
    pub label: String,
    /// The state directory; `None` if nothing is stored.
    pub state_dir: Option<PathBuf>,
    /// The settings of the recording, if the conversation is recorded.
    pub recording: Option<Recording>,
    /// A short, readable name of the server.
    pub name: String,
    /// Warnings about the route file.
    pub warnings: Vec<ConfigFault>,
}

/// The reason why arguments cannot be used, if the command-line parser does not find it.
#[derive(Debug, thiserror::Error)]
pub enum WrapError {
    /// The route file cannot be used.
    #[error(transparent)]
    Routes(#[from] RoutesError),
    /// A flag's value is not valid for the setting. Holds the flag, and what is expected.
    #[error("{0}")]
    Setting(String),
    /// The text is not a header.
    #[error("--header: {0}")]
    Header(String),
    /// The variable does not contain a token.
    #[error("--bearer-env: {0}")]
    Bearer(String),
    /// The route file has no admin listener.
    #[error("{}: an [admin] table is expected; without it there is no admin listener", .0.display())]
    NoAdmin(PathBuf),
    /// The text is not the address of an admin listener.
    #[error(
        "{0} is not the address of an admin listener; an address such as http://127.0.0.1:7333 is expected"
    )]
    Admin(String),
    /// A name of `--fleet` has no address.
    #[error("--fleet: {0} has no address")]
    NoReplica(String, #[source] io::Error),
    /// The file does not contain a token.
    #[error("--bearer-file: {0}")]
    BearerFile(String),
    /// The server's URL is not valid. The message omits it, because it may contain a secret.
    #[error(
        "the address of the server is not a valid URL; one such as https://example.com/mcp is expected"
    )]
    BadAddress,
    /// A word follows the server's URL.
    #[error("{0:?} stands behind the address of the server; options come before it")]
    BehindAddress(OsString),
    /// The text is not a header and a variable.
    #[error("--header-env: {0}")]
    HeaderEnv(String),
    /// The proxy's URL is not valid. The message omits it, because it may contain a secret.
    #[error("--forward-proxy: {0}")]
    Proxy(String),
    /// The file has no certificate authorities.
    #[error("--ca-file: {0}")]
    CaFile(String),
    /// Options for a server at a URL are given, but the server is a child process.
    #[error(
        "--header, --header-env, --bearer-file, --bearer-env, --transport, --forward-proxy and --ca-file are only for a \
         server at a URL"
    )]
    NoAddress,
}

impl WrapArgs {
    /// Returns the settings from the arguments and the route file.
    ///
    /// # Errors
    /// If the route file cannot be used, or does not fit the arguments.
    pub fn resolve(&self) -> Result<Wrapped, WrapError> {
        let mut policy = Policy::default();
        let mut own = Vec::new();
        let mut route = None;
        let mut kept = None;
        let mut warnings = Vec::new();
        if let Some(file) = &self.policy.config {
            let routes = Routes::load(file)?.with_strict_files(self.strict_files)?;
            warnings = routes.file_warnings();
            routes.apply_defaults(&mut policy);
            let name = self.policy.route.as_deref();
            // If the command line names the server, the file need not have a route.
            route = match routes.find(name) {
                Err(_) if name.is_none() && !self.command.is_empty() => {
                    warnings.extend(routes.unnamed_route());
                    None
                }
                found => Some(found?.clone()),
            };
            if let Some(route) = &route {
                route.apply(&mut policy);
            }
            own = routes.dialects().to_vec();
            kept = routes.state().cloned();
        }
        let preset = self.policy.preset(&own)?;
        if let Some(preset) = &preset {
            preset.apply(&mut policy);
            own = preset.dialects().to_vec();
        }
        self.policy.settings(&own).map_err(WrapError::Setting)?.apply(&mut policy);
        let label = match (self.address()?, &route) {
            (Some(url), _) => durations::label_of_address(&url),
            (None, Some(route)) if self.command.is_empty() => durations::label_of_route(route),
            _ => durations::label_of_command(&self.command),
        };
        let name = match (self.address()?, &route) {
            (Some(url), _) => url.host_str().unwrap_or_default().to_owned(),
            (None, Some(route)) if self.command.is_empty() => route.path.clone(),
            _ => name_of_command(&self.command),
        };
        let mut server = self.server(route)?;
        if let (Some(preset), WrappedServer::Http { route, .. }) = (&preset, &mut server) {
            preset.merge_into(route)?;
            policy.bare_results |= route.wraps_results();
        }
        let state_dir = durations::state_dir(self.state_dir.as_ref(), kept.as_ref());
        let recording = self.record.recording();
        Ok(Wrapped { policy, server, label, state_dir, recording, name, warnings })
    }

    fn server(&self, route: Option<Route>) -> Result<WrappedServer, WrapError> {
        let mut route = match (self.address()?, route) {
            (Some(url), route) => at_address(url, self.remote.transport(), route),
            (None, Some(route)) if self.command.is_empty() => route,
            (None, route) => {
                let mut stdio = match route.map(|route| route.upstream) {
                    Some(Upstream::Command(stdio)) => stdio,
                    _ => StdioUpstream::new(Vec::new()),
                };
                stdio.command.clone_from(&self.command);
                return self.child(stdio);
            }
        };
        if let Upstream::Command(stdio) = route.upstream {
            return self.child(stdio);
        }
        self.remote.apply(&mut route)?;
        let bearer_file = self.remote.bearer_file();
        // The file is read for each request. Read it now too, to report a missing file at the start.
        bearer_file.as_deref().map(bearer_in).transpose()?;
        Ok(WrappedServer::Http { route: Box::new(route), bearer_file })
    }

    fn child(&self, stdio: StdioUpstream) -> Result<WrappedServer, WrapError> {
        if self.remote.is_given() {
            return Err(WrapError::NoAddress);
        }
        Ok(WrappedServer::Command(stdio))
    }

    /// Returns the server's URL, if the command is a URL.
    ///
    /// # Errors
    /// If a word follows the URL.
    pub fn address(&self) -> Result<Option<Url>, WrapError> {
        address(&self.command)
    }
}

/// Returns the server's URL, if the command is a URL.
fn address(command: &[OsString]) -> Result<Option<Url>, WrapError> {
    let Some(first) = command.first().and_then(|first| first.to_str()) else {
        return Ok(None);
    };
    let url = Url::parse(first).ok();
    let url = url.filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    if url.is_none() && ["http://", "https://"].iter().any(|scheme| first.starts_with(scheme)) {
        return Err(WrapError::BadAddress);
    }
    match command.get(1) {
        Some(more) if url.is_some() => Err(WrapError::BehindAddress(more.clone())),
        _ => Ok(url),
    }
}
