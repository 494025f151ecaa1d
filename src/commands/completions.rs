//! Completions of the command line. The shell runs this program to get them, so that names of routes and servers are
//! completed too.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;

use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};

use crate::commands::adopt;
use crate::commands::args::{Cli, ROUTE_FILE};
use crate::commands::init::paths_in;
use crate::commands::man::NAME;
use crate::observe::durations::{Store, state_dir};
use crate::protocol::order;

/// The variable by which a shell's script asks for completions; its value is the name of the shell.
const ASKED: &str = "MILEPOST_COMPLETE";

/// Maximum number of bytes of a file that is read for names. The files are small; a completion must not wait for larger
/// ones.
const FILE_MAX: u64 = 4 << 20;

/// Returns the script that makes a shell ask this program for completions.
pub fn script(shell: Shell) -> String {
    let mut out = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&shell.to_string()) {
        // Ignore the error: writing to a byte vector does not fail.
        let _ = shell.write_registration(ASKED, NAME, NAME, NAME, &mut out);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Prints the completions if a shell asks for them. Returns `false` if no shell asks.
///
/// # Errors
/// If the shell is unknown, or standard output cannot be written.
pub fn answer() -> Result<bool, clap::Error> {
    let folder = env::current_dir().ok();
    CompleteEnv::with_factory(with_names).var(ASKED).try_complete(env::args_os(), folder.as_deref())
}

/// Returns the command line's description, with completions for names that only files of this machine contain.
fn with_names() -> Command {
    Cli::command().mut_subcommands(|command| match command.get_name() {
        "adopt" => completed_by(command, "server", servers),
        "stats" => completed_by(command, "route", learned),
        _ => completed_by(command, "route", routes),
    })
}

fn completed_by(command: Command, long: &str, completer: fn() -> ArgValueCompleter) -> Command {
    command.mut_args(|arg: Arg| match arg.get_long() {
        Some(name) if name == long => arg.add(completer()),
        _ => arg,
    })
}

/// Completes the paths of the routes in the route file of the command line.
fn routes() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let file = named_file(&typed_words()).unwrap_or_else(|| PathBuf::from(ROUTE_FILE));
        let text = small_text(&file);
        // A file with errors has routes too, so it is read without checks.
        beginning_with(current, text.map(|text| paths_in(&text)).unwrap_or_default())
    })
}

/// Completes the names of servers in the client's file that the command line names, or else in the files of all clients
/// on this machine.
fn servers() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let words = typed_words();
        let named = words.iter().skip(2).map(PathBuf::from).find(|path| path.is_file());
        let files = named.map_or_else(adopt::client_files, |file| vec![file]);
        let names = files.iter().filter_map(|file| small_text(file));
        beginning_with(current, names.flat_map(|text| adopt::server_names(&text)).collect())
    })
}

/// Completes the routes and commands with learned durations.
fn learned() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let rows = state_dir(None, None).and_then(|folder| Store::new(&folder).read().ok());
        let rows = rows.into_iter().flatten();
        beginning_with(current, rows.map(|row| row.route.to_string()).collect())
    })
}

/// Returns the words of the command line that is being typed, the program's name first.
fn typed_words() -> Vec<OsString> {
    env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// Returns the file that the typed words name with `--config`.
fn named_file(words: &[OsString]) -> Option<PathBuf> {
    let mut words = words.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match word.strip_prefix("--config") {
            Some("") => return words.next().map(PathBuf::from),
            Some(file) => return file.strip_prefix('=').map(PathBuf::from),
            None => {}
        }
    }
    None
}

fn small_text(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    (metadata.is_file() && metadata.len() <= FILE_MAX).then(|| fs::read_to_string(path).ok())?
}

fn beginning_with(current: &OsStr, mut names: Vec<String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    order::sort(&mut names);
    names.dedup();
    names.retain(|name| name.starts_with(&*current));
    names.into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_file_is_the_one_after_config() {
        let file = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            named_file(&words)
        };
        assert_eq!(file("milepost doctor --config a.toml --route"), Some("a.toml".into()));
        assert_eq!(file("milepost doctor --config=b.toml --route"), Some("b.toml".into()));
        assert_eq!(file("milepost doctor --route"), None);
    }
}
