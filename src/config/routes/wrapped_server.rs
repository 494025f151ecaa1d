//! A server that is named on the command line, with its settings.

use std::path::PathBuf;

use super::{Route, StdioUpstream};

/// The server behind `milepost wrap` or `milepost try`.
#[derive(Debug)]
pub enum WrappedServer {
    /// A child process.
    Command(StdioUpstream),
    /// A server that is reached over HTTP.
    Http {
        /// The URL and the headers, in the form of a route.
        route: Box<Route>,
        /// The file that holds the token to present.
        bearer_file: Option<PathBuf>,
    },
}
