//! `milepost adopt`: puts `milepost wrap` in front of the servers of a client's file.
//!
//! The text is changed in place: comments, order, spacing and all other members stay unchanged. `--undo` removes
//! exactly the text that was added, even after other changes of the file.

mod address;
mod change;
mod codex;
mod command_list;
mod document;
mod entry;
mod file;
mod formats;
mod found_clients;
mod goose;
mod listed;
mod our_command;
mod repository;
mod show;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use change::FileTerms;
use file::ClientFile;
use repository::Sharing;
use serde_json::Value;

use crate::commands::args::AdoptArgs;

pub use found_clients::list;
pub use listed::{ListedFile, ListedServer};

/// The reason why a client's file stays unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file or its backup cannot be written.
    #[error("cannot write {}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The text of the file is not valid at some place.
    #[error("{}:{line}:{column}: {what}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in characters.
        column: usize,
        /// The fault.
        what: String,
    },
    /// The file has no server with this name.
    #[error("{}: no server is called {name:?}; {known}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The similar name, or the known names.
        known: String,
    },
    /// The file has changed since it was read.
    #[error("{} has changed meanwhile; nothing was written, try again", .0.display())]
    Changed(PathBuf),
    /// The permissions of the file forbid writing.
    #[error("{} is read-only; nothing was written: `chmod u+w` allows it", .0.display())]
    ReadOnly(PathBuf),
    /// No file was named, and none was found.
    #[error("no client's file of servers was found; give its path. These were looked for: {0}")]
    NoClients(String),
    /// A question must be asked, but there is no terminal.
    #[error(
        "nothing was written: there is no terminal to ask at; --yes writes without asking, and --dry-run \
         only shows"
    )]
    NobodyToAsk,
    /// The name of the program that the client is to start cannot be used.
    #[error("--milepost: {0}")]
    Program(String),
    /// The preview cannot be written.
    #[error("cannot show what would change")]
    Output(#[from] io::Error),
}

impl AdoptError {
    fn wrong(path: &Path, text: &str, at: usize, what: impl Into<String>) -> Self {
        let (line, column) = document::line_and_column(text, at);
        Self::Wrong { path: path.to_owned(), line, column, what: what.into() }
    }
}

/// Returns the names of the servers in a client's file, as `--server` takes them; none if the text cannot be read.
pub fn server_names(text: &str) -> Vec<String> {
    if let Ok(Some(file)) = document::parse(text) {
        let entries = document::entries(&file).into_iter().flatten();
        return entries.map(|entry| entry.name.to_owned()).collect();
    }
    let file: toml::Table = text.parse().unwrap_or_default();
    let servers = file.get(codex::SERVERS).and_then(toml::Value::as_table);
    servers.into_iter().flat_map(toml::Table::keys).cloned().collect()
}

/// Returns the existing files of the clients on this machine.
pub fn client_files() -> Vec<PathBuf> {
    found_clients::existing().into_iter().map(|place| place.path).collect()
}

/// Shows the changes on `out`, and writes them if the arguments or the user allow it. `asked` reads the user's answers;
/// `None` if no user can be asked. Returns whether all requested changes were made.
///
/// # Errors
/// Why nothing was written.
pub fn run(
    args: &AdoptArgs,
    out: &mut dyn Write,
    mut asked: Option<&mut dyn BufRead>,
) -> Result<bool, AdoptError> {
    let files = match &args.file {
        Some(file) => vec![file.clone()],
        None => found_clients::files(args)?,
    };
    if args.json {
        return as_json(args, &files, out);
    }
    let (mut is_done, mut failed) = (true, None);
    for file in &files {
        let asked: Option<&mut dyn BufRead> = match &mut asked {
            Some(asked) => Some(&mut **asked),
            None => None,
        };
        match one(args, file, out, asked) {
            Ok(done) => is_done &= done,
            Err(error) if args.file.is_some() => return Err(error),
            // Continue with the files of other clients, which do not depend on this error.
            Err(error) => {
                writeln!(out, "{}", crate::observe::error_chain::error_chain(&error))?;
                failed = Some(error);
            }
        }
    }
    failed.map_or(Ok(is_done), Err)
}

/// Shows and writes the changes of one file.
fn one(
    args: &AdoptArgs,
    path: &Path,
    out: &mut dyn Write,
    asked: Option<&mut dyn BufRead>,
) -> Result<bool, AdoptError> {
    let (file, text) = ClientFile::read(path)?;
    let sharing = Sharing::of(path);
    let backup = file.backup(&sharing);
    let kept = backup.text();
    let terms = FileTerms { args, path, sharing: &sharing, backup: kept.as_deref() };
    let change = formats::change(&terms, &text)?;
    out.write_all(change.report.as_bytes())?;
    let Some(new) = &change.text else { return Ok(true) };
    if args.dry_run {
        return Ok(true);
    }
    if file.is_read_only() {
        return Err(AdoptError::ReadOnly(path.to_owned()));
    }
    if !args.yes {
        let answers = asked.ok_or(AdoptError::NobodyToAsk)?;
        write!(out, "Write {}? [y/N] ", path.display())?;
        out.flush()?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            writeln!(out, "Nothing was written.")?;
            return Ok(false);
        }
    }
    let backup = file.write(new, &backup, change.older_backup)?;
    let kept = match backup {
        Some(backup) => format!("as it was, it is in {}", backup.display()),
        None => "it is again as it was before Milepost, so that its backup is removed".to_owned(),
    };
    // Ignore the error: the change is written, even if the output cannot be.
    let _ = writeln!(out, "Written; {kept}. Start the client again.");
    Ok(true)
}

/// Prints the changes that would be made, as a list with an object for each file.
fn as_json(args: &AdoptArgs, files: &[PathBuf], out: &mut dyn Write) -> Result<bool, AdoptError> {
    let mut all = Vec::new();
    for path in files {
        let (file, text) = ClientFile::read(path)?;
        let sharing = Sharing::of(path);
        let backup = file.backup(&sharing).text();
        let terms = FileTerms { args, path, sharing: &sharing, backup: backup.as_deref() };
        all.push(formats::change(&terms, &text)?.json(path, &file, &sharing));
    }
    writeln!(out, "{}", Value::from(all))?;
    Ok(true)
}
