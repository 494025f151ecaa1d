//! The files of servers of the clients on this machine.

use std::env;
use std::path::{Path, PathBuf};

use super::change::FileTerms;
use super::file::ClientFile;
use super::repository::Sharing;
use super::{AdoptError, formats};
use crate::commands::args::AdoptArgs;
use crate::platform::files;

/// The files that clients have in the home folder of their user.
const AT_HOME: [&str; 17] = [
    ".claude.json",
    ".config/Claude/claude_desktop_config.json",
    "Library/Application Support/Claude/claude_desktop_config.json",
    "AppData/Roaming/Claude/claude_desktop_config.json",
    ".cursor/mcp.json",
    ".config/Code/User/mcp.json",
    "Library/Application Support/Code/User/mcp.json",
    "AppData/Roaming/Code/User/mcp.json",
    ".codeium/windsurf/mcp_config.json",
    ".gemini/settings.json",
    ".config/opencode/opencode.json",
    ".config/opencode/opencode.jsonc",
    ".codex/config.toml",
    ".config/goose/config.yaml",
    ".config/zed/settings.json",
    ".config/Cursor/User/mcp.json",
    ".copilot/mcp-config.json",
];

/// The files that clients have in the folder of a project.
const IN_PROJECT: [&str; 6] = [
    ".mcp.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    ".gemini/settings.json",
    "opencode.json",
    ".codex/config.toml",
];

/// The places of clients' files in the home folder and in this folder, those of this folder last.
pub(super) fn places() -> Vec<PathBuf> {
    let home = files::home().map(PathBuf::from).filter(|home| home.is_absolute());
    let here = env::current_dir().unwrap_or_default();
    let at_home = home.iter().flat_map(|home| AT_HOME.iter().map(|name| home.join(name)));
    at_home.chain(IN_PROJECT.iter().map(|name| here.join(name))).collect()
}

/// The files that are there and hold servers, those of this folder last.
///
/// # Errors
/// If there is none.
pub(super) fn files(args: &AdoptArgs) -> Result<Vec<PathBuf>, AdoptError> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in places() {
        if path.is_file() && !found.contains(&path) && has_servers(args, &path) {
            found.push(path);
        }
    }
    if found.is_empty() {
        let all = AT_HOME.iter().map(|name| format!("~/{name}"));
        let all = all.chain(IN_PROJECT.iter().map(|name| (*name).to_owned()));
        return Err(AdoptError::NoClients(all.collect::<Vec<_>>().join(", ")));
    }
    Ok(found)
}

/// Whether a file can be read and holds servers. Settings of a client without servers are not worth a
/// word.
fn has_servers(args: &AdoptArgs, path: &Path) -> bool {
    let Ok((_, text)) = ClientFile::read(path) else { return false };
    let sharing = Sharing::default();
    let terms = FileTerms { args, path, sharing: &sharing, backup: None };
    formats::change(&terms, &text).is_ok()
}
