//! The reasons why `doctor` and `try` have no result.

use crate::config::routes::RoutesError;
use crate::gateway::listen::StartError;
use crate::transport::child::SpawnError;
use crate::transport::mcp_http::target::TargetError;

/// The reason why no report on a server was made.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The server does not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The address or the certificates cannot be used.
    #[error(transparent)]
    Site(#[from] TargetError),
    /// The server is not an MCP server, or is not reachable.
    #[error("cannot use the server: {0}")]
    Server(String),
    /// The server has no tool with this name.
    #[error("the server has no tool {asked:?}; {known}")]
    NoTool {
        /// The requested tool.
        asked: String,
        /// The tools of the server.
        known: String,
    },
    /// The call has not all arguments that the tool requires.
    #[error(
        "the tool {tool} requires arguments that are missing: {missing}; write --args '{arguments}'"
    )]
    MissingArguments {
        /// The tool.
        tool: String,
        /// The missing arguments.
        missing: String,
        /// The given arguments and examples of the missing ones, as JSON for a shell's single quotes.
        arguments: String,
    },
    /// The server does not speak the revision.
    #[error(
        "the server does not speak {0}; without --revision Milepost uses the newest revision of the server"
    )]
    Revision(&'static str),
    /// The proxy does not start.
    #[error("the proxy does not start")]
    Proxy(#[from] StartError),
    /// The suggested route file is not valid.
    #[error("the suggested lines cannot be used")]
    Lines(#[from] RoutesError),
    /// The proxy's address is not a valid URL.
    #[error("the proxy has no address")]
    Address(#[from] url::ParseError),
    /// The user does not agree to the calls.
    #[error("no tool was called; `--yes` calls a tool without a question")]
    NotAgreed,
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
}
