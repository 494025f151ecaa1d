//! Finds the files in which clients on this machine list their servers.

use std::env;
use std::path::{Path, PathBuf};

use super::change::FileTerms;
use super::file::ClientFile;
use super::listed::ListedFile;
use super::repository::Sharing;
use super::{AdoptError, formats};
use crate::commands::args::AdoptArgs;
use crate::platform::files;

/// The files of clients in the user's home directory: each path with the name of its client.
const AT_HOME: [(&str, &str); 17] = [
    (".claude.json", "Claude Code"),
    (".config/Claude/claude_desktop_config.json", "Claude Desktop"),
    ("Library/Application Support/Claude/claude_desktop_config.json", "Claude Desktop"),
    ("AppData/Roaming/Claude/claude_desktop_config.json", "Claude Desktop"),
    (".cursor/mcp.json", "Cursor"),
    (".config/Code/User/mcp.json", "VS Code"),
    ("Library/Application Support/Code/User/mcp.json", "VS Code"),
    ("AppData/Roaming/Code/User/mcp.json", "VS Code"),
    (".codeium/windsurf/mcp_config.json", "Windsurf"),
    (".gemini/settings.json", "Gemini CLI"),
    (".config/opencode/opencode.json", "opencode"),
    (".config/opencode/opencode.jsonc", "opencode"),
    (".codex/config.toml", "Codex"),
    (".config/goose/config.yaml", "goose"),
    (".config/zed/settings.json", "Zed"),
    (".config/Cursor/User/mcp.json", "Cursor"),
    (".copilot/mcp-config.json", "Copilot CLI"),
];

/// The files of clients in a project's directory: each path with the name of its client.
const IN_PROJECT: [(&str, &str); 6] = [
    (".mcp.json", "Claude Code"),
    (".cursor/mcp.json", "Cursor"),
    (".vscode/mcp.json", "VS Code"),
    (".gemini/settings.json", "Gemini CLI"),
    ("opencode.json", "opencode"),
    (".codex/config.toml", "Codex"),
];

/// A path at which a client may list its servers.
#[derive(Debug)]
pub(super) struct ClientPlace {
    /// The name of the client.
    pub(super) client: &'static str,
    /// The path of the file.
    pub(super) path: PathBuf,
}

/// Returns the existing files of clients in the home directory and in the current directory, each once, those of the
/// current directory last.
pub(super) fn existing() -> Vec<ClientPlace> {
    let home = files::home().map(PathBuf::from).filter(|home| home.is_absolute());
    let here = env::current_dir().unwrap_or_default();
    let at_home =
        home.iter().flat_map(|home| AT_HOME.map(|(name, client)| (home.join(name), client)));
    let all = at_home.chain(IN_PROJECT.map(|(name, client)| (here.join(name), client)));
    let mut found: Vec<ClientPlace> = Vec::new();
    for (path, client) in all {
        // If the current directory is the home directory, both lists lead to the same files.
        let is_known = found.iter().any(|known| known.path == path);
        if !is_known && path.is_file() {
            found.push(ClientPlace { client, path });
        }
    }
    found
}

/// Reads the servers in the files of the clients on this machine, those of the current directory last.
pub fn list() -> Vec<ListedFile> {
    let read = |ClientPlace { client, path }: ClientPlace| {
        let text = ClientFile::read(&path).map(|(_, text)| text);
        let servers = text.and_then(|text| formats::servers(&path, &text));
        ListedFile { client, path, servers }
    };
    existing().into_iter().map(read).collect()
}

/// Returns the existing files that contain servers, those of the current directory last.
///
/// # Errors
/// If no such file exists.
pub(super) fn files(args: &AdoptArgs) -> Result<Vec<PathBuf>, AdoptError> {
    let found = existing().into_iter().map(|place| place.path);
    let found: Vec<PathBuf> = found.filter(|path| has_servers(args, path)).collect();
    if found.is_empty() {
        let all = AT_HOME.iter().map(|(name, _)| format!("~/{name}"));
        let all = all.chain(IN_PROJECT.iter().map(|(name, _)| (*name).to_owned()));
        return Err(AdoptError::NoClients(all.collect::<Vec<_>>().join(", ")));
    }
    Ok(found)
}

/// Whether a file can be read and has servers. A file without servers is skipped: it is only the client's settings.
fn has_servers(args: &AdoptArgs, path: &Path) -> bool {
    let Ok((_, text)) = ClientFile::read(path) else { return false };
    let sharing = Sharing::default();
    let terms = FileTerms { args, path, sharing: &sharing, backup: None };
    formats::change(&terms, &text).is_ok()
}
