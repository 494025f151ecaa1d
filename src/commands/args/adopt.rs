//! The arguments of `milepost adopt`, `completions` and `man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `milepost adopt`.
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// The client's file: claude_desktop_config.json, ~/.claude.json, .mcp.json, .cursor/mcp.json,
    /// .vscode/mcp.json, settings.json, opencode.json, ~/.codex/config.toml ...
    /// [default: the files of the clients that are found on this machine]
    #[arg(value_name = "CLIENT_CONFIG")]
    pub file: Option<PathBuf>,
    /// Only this server; repeat for more. A server at a URL that may ask for a sign-in is wrapped
    /// only by name
    #[arg(long = "server", value_name = "NAME")]
    pub servers: Vec<String>,
    /// Remove Milepost again; other changes of the file stay
    #[arg(long)]
    pub undo: bool,
    /// Show what would change, and write nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Print what would change as JSON, a list with an object for each file (docs/clients-setup.md)
    #[arg(long, requires = "dry_run")]
    pub json: bool,
    /// Write without asking
    #[arg(long)]
    pub yes: bool,
    /// The program that the client is to start [default: `milepost` if PATH leads to this program or
    /// others share the file; `npx -y milepost` or `uvx milepost` if these have fetched it; else the
    /// full path of this program]
    #[arg(long, value_name = "PATH", conflicts_with = "undo")]
    pub milepost: Option<PathBuf>,
}

/// `milepost completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `milepost man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write one page for each command into this folder instead
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
