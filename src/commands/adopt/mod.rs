//! `milepost adopt`: puts `milepost wrap` in front of the servers of a client's file.
//!
//! The text is changed in place: comments, order, spacing and all other members stay as they are.
//! `--undo` removes exactly the text that was added, also after other changes of the file.

mod address;
mod document;
mod entry;
mod file;
mod show;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use crate::commands::args::AdoptArgs;
use crate::config::values::nearest;

use document::{Edit, ServerEntry};
use entry::Alone;
use file::ClientFile;
use show::plain;

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
    /// A part of the file cannot be read.
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
    /// The file has no server of this name.
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
    /// There is no terminal to ask at.
    #[error(
        "nothing was written: there is no terminal to ask at; --yes writes without asking, and --dry-run \
         only shows"
    )]
    NobodyToAsk,
    /// The name of the program that the client is to start.
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

/// Shows the changes on `out`, and writes them if the arguments or the user allow it. `asked` reads
/// the user's answers, if there is a user. Returns whether all requested changes were made.
///
/// # Errors
/// Why nothing was written.
pub fn run(
    args: &AdoptArgs,
    out: &mut dyn Write,
    asked: Option<&mut dyn BufRead>,
) -> Result<bool, AdoptError> {
    let (file, text) = ClientFile::read(&args.file)?;
    let change = Change::new(args, &text)?;
    out.write_all(change.report.as_bytes())?;
    let Some(new) = change.text else { return Ok(true) };
    if args.dry_run {
        return Ok(true);
    }
    if !args.yes {
        let answers = asked.ok_or(AdoptError::NobodyToAsk)?;
        write!(out, "Write {}? [y/N] ", args.file.display())?;
        out.flush()?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            writeln!(out, "Nothing was written.")?;
            return Ok(false);
        }
    }
    let backup = file.write(&new)?;
    // It is written, whether or not anybody reads so.
    let _ =
        writeln!(out, "Written; as it was, it is in {}. Start the client again.", backup.display());
    Ok(true)
}

/// The change of a file.
struct Change {
    /// For a person to read.
    report: String,
    /// The new text, if there are changes.
    text: Option<String>,
}

impl Change {
    fn new(args: &AdoptArgs, text: &str) -> Result<Self, AdoptError> {
        let path = &*args.file;
        let parsed = document::parse(text).map_err(|error| {
            AdoptError::wrong(path, text, error.range().start, error.kind().to_string())
        })?;
        let entries = parsed.as_ref().and_then(document::entries).ok_or_else(|| {
            let what = "no servers are here; a file with \"mcpServers\" or \"servers\" is expected";
            AdoptError::wrong(path, text, 0, what)
        })?;
        all_known(args, &entries)?;
        let program = if args.undo { String::new() } else { program(args.milepost.as_deref())? };
        let mut report = format!("{}\n", plain(&path.display().to_string()));
        let (mut edits, mut changed) = (Vec::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            let is_named = args.servers.iter().any(|name| name == entry.name);
            if !(is_named || args.servers.is_empty()) {
                continue;
            }
            let fate = match args.undo {
                true => entry::unwrap(text, entry.object),
                false => entry::wrap(text, entry.object, &program, is_named),
            };
            let fate = match fate {
                Ok(Some(more)) => {
                    edits.extend(more);
                    changed.push(at);
                    if args.undo { "unwrapped" } else { "wrapped" }.to_owned()
                }
                Ok(None) => if args.undo { "not wrapped" } else { "wrapped already" }.to_owned(),
                Err(Alone { why, at }) if is_named => {
                    let what = format!("{}: {why}", plain(&entry.title()));
                    return Err(AdoptError::wrong(path, text, at, what));
                }
                Err(Alone { why, at }) => {
                    let (line, column) = document::line_and_column(text, at);
                    format!("left alone ({line}:{column}): {why}")
                }
            };
            report += &format!("  {}: {fate}\n", plain(&entry.title()));
        }
        if changed.is_empty() {
            return Ok(Self { report: report + "Nothing changes.\n", text: None });
        }
        let new = rewritten(path, text, &entries, &changed, edits, &mut report)?;
        Ok(Self { report, text: Some(new) })
    }
}

/// The new text, checked by reading it again, with a preview of the changes.
fn rewritten(
    path: &Path,
    text: &str,
    entries: &[ServerEntry<'_>],
    changed: &[usize],
    edits: Vec<Edit>,
    report: &mut String,
) -> Result<String, AdoptError> {
    let new = document::apply(text, edits);
    let unsound = |at| {
        AdoptError::wrong(
            path,
            text,
            at,
            "the form of this entry is not known; nothing was written",
        )
    };
    let parsed = document::parse(&new).map_err(|error| unsound(error.range().start))?;
    let found = parsed.as_ref().and_then(document::entries).unwrap_or_default();
    for at in changed {
        let (Some(old), Some(now)) = (entries.get(*at), found.get(*at)) else {
            return Err(unsound(0));
        };
        if old.name != now.name {
            return Err(unsound(old.at));
        }
        *report += &show::diff((text, old), (&new, now));
    }
    Ok(new)
}

/// Checks that every named server exists.
fn all_known(args: &AdoptArgs, entries: &[ServerEntry<'_>]) -> Result<(), AdoptError> {
    for name in &args.servers {
        if entries.iter().any(|entry| entry.name == name) {
            continue;
        }
        let mut known: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
        known.dedup();
        let known = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("the servers are {}", plain(&known.join(", "))),
        };
        return Err(AdoptError::Unknown { path: args.file.clone(), name: name.clone(), known });
    }
    Ok(())
}

/// The program that the client is to start.
fn program(given: Option<&Path>) -> Result<String, AdoptError> {
    let path = match given {
        None => std::env::current_exe().map_err(|error| {
            AdoptError::Program(format!(
                "the path of this program is not known ({error}); give a path"
            ))
        })?,
        // The client starts it in a folder of its own.
        Some(given) if given.components().count() > 1 && given.exists() => {
            std::path::absolute(given)?
        }
        Some(given) => given.to_owned(),
    };
    let Some(path) = path.to_str() else {
        return Err(AdoptError::Program(format!("{} is no Unicode", path.display())));
    };
    if !entry::is_milepost(path) {
        let why =
            format!("{path:?}: its name has to begin with `milepost`, so that it is known again");
        return Err(AdoptError::Program(why));
    }
    Ok(path.to_owned())
}
