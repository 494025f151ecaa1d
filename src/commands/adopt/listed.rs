//! The servers in the files of the clients on this machine, and whether Milepost is in front of each.

use std::path::PathBuf;

use super::AdoptError;

/// A server in a client's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedServer {
    /// The name of the server.
    pub name: String,
    /// The project directory that the entry is for, if the file has entries for several projects.
    pub project: Option<String>,
    /// Whether the client starts the server with `milepost wrap`.
    pub is_wrapped: bool,
}

/// A client's file with its servers.
#[derive(Debug)]
pub struct ListedFile {
    /// The name of the client.
    pub client: &'static str,
    /// The path of the file.
    pub path: PathBuf,
    /// The servers in the order of the file, if the format has an order; empty if the file contains only settings.
    pub servers: Result<Vec<ListedServer>, AdoptError>,
}
