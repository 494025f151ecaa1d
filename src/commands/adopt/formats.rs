//! The formats of clients' files: JSON with comments, the TOML of Codex, the YAML of goose.

use std::path::Path;

use jsonc_parser::ast::Value;

use super::change::{Change, FileTerms, ServerFate};
use super::document::{Edit, ServerEntry};
use super::entry::{Alone, Choice, WrappedBy};
use super::file::OlderBackup;
use super::listed::ListedServer;
use super::show::plain;
use super::{AdoptError, codex, document, entry, goose, show};

/// Returns the change of a file with this text.
///
/// # Errors
/// If the file cannot be read, or a named server cannot be changed.
pub(super) fn change(terms: &FileTerms<'_>, text: &str) -> Result<Change, AdoptError> {
    match terms.path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => codex::change(terms, text),
        Some("yaml" | "yml") => goose::change(terms, text),
        _ => change_json(terms, text),
    }
}

/// Returns the servers of a file with this text; empty if the file has no place for servers.
///
/// # Errors
/// If the text is not in the format that the name of the file promises. Any text is accepted as YAML.
pub(super) fn servers(path: &Path, text: &str) -> Result<Vec<ListedServer>, AdoptError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => codex::listed(path, text),
        Some("yaml" | "yml") => Ok(goose::listed(text)),
        _ => listed_json(path, text),
    }
}

fn listed_json(path: &Path, text: &str) -> Result<Vec<ListedServer>, AdoptError> {
    let parsed = parse_json(path, text)?;
    let entries = parsed.as_ref().and_then(document::entries).unwrap_or_default();
    let listed = |entry: &ServerEntry<'_>| ListedServer {
        name: entry.name.to_owned(),
        project: entry.project.map(str::to_owned),
        is_wrapped: entry::wrapped_by(text, entry.object).is_some(),
    };
    Ok(entries.iter().map(listed).collect())
}

/// Reads a JSON file; `None` if it is empty.
fn parse_json<'t>(path: &Path, text: &'t str) -> Result<Option<Value<'t>>, AdoptError> {
    document::parse(text).map_err(|error| {
        AdoptError::wrong(path, text, error.range().start, error.kind().to_string())
    })
}

fn change_json(terms: &FileTerms<'_>, text: &str) -> Result<Change, AdoptError> {
    let path = terms.path;
    let parsed = parse_json(path, text)?;
    let entries = parsed.as_ref().and_then(document::entries).ok_or_else(|| {
        let what = "no servers are here; a file with \"mcpServers\" or \"servers\" is expected";
        AdoptError::wrong(path, text, 0, what)
    })?;
    terms.all_known(&entries.iter().map(|entry| entry.name).collect::<Vec<_>>())?;
    let ours = terms.our_command()?;
    let before = Earlier::new(terms.backup);
    let (mut edits, mut changed, mut fates) = (Vec::new(), Vec::new(), Vec::new());
    for (at, entry) in entries.iter().enumerate() {
        let Some(choice) = terms.choice(entry.name) else { continue };
        let title = entry.title();
        let fate = match terms.args.undo {
            true if choice == Choice::WithAll && is_by_hand(text, entry, &before) => {
                let words =
                    "left alone: it was wrapped by hand; `--server NAME` takes Milepost out";
                fates.push(ServerFate::new(&title, "left", words));
                continue;
            }
            true => entry::unwrap(text, entry.object),
            false => entry::wrap(text, entry.object, &ours, choice),
        };
        fates.push(match fate {
            Ok(Some(more)) => {
                edits.extend(more);
                changed.push(at);
                let action = if terms.args.undo { "unwrapped" } else { "wrapped" };
                ServerFate::new(&title, action, action)
            }
            Ok(None) => {
                let words = if terms.args.undo { "not wrapped" } else { "wrapped already" };
                ServerFate::new(&title, "unchanged", words)
            }
            Err(Alone { why, at }) if choice == Choice::ByName => {
                let what = format!("{}: {why}", plain(&title));
                return Err(AdoptError::wrong(path, text, at, what));
            }
            Err(Alone { why, at }) => {
                let (line, column) = document::line_and_column(text, at);
                let words = format!("left alone ({line}:{column}): {why}");
                ServerFate::new(&title, "left", words)
            }
        });
    }
    let mut change = Change::begin(terms, fates);
    let is_adopted = entries.iter().any(|entry| {
        let is_wrapped = entry::wrapped_by(text, entry.object).is_some();
        is_wrapped && before.is_wrapped(entry) == Some(false)
    });
    if is_adopted {
        change.older_backup = OlderBackup::Kept;
    }
    if changed.is_empty() {
        change.report += "Nothing changes.\n";
    } else {
        let report = &mut change.report;
        change.text = Some(rewritten(path, text, &entries, &changed, edits, report)?);
    }
    Ok(change)
}

/// The servers in the backup: each with its project directory, its name, and whether Milepost was in front of it.
struct Earlier {
    entries: Vec<(Option<String>, String, bool)>,
}

impl Earlier {
    fn new(backup: Option<&str>) -> Self {
        let text = backup.unwrap_or_default();
        let parsed = document::parse(text).ok().flatten();
        let entries = parsed.as_ref().and_then(document::entries).unwrap_or_default();
        let one = |entry: &ServerEntry<'_>| {
            let is_wrapped = entry::wrapped_by(text, entry.object).is_some();
            (entry.project.map(str::to_owned), entry.name.to_owned(), is_wrapped)
        };
        Self { entries: entries.iter().map(one).collect() }
    }

    /// Whether Milepost was in front of a server; `None` if the server was not there.
    fn is_wrapped(&self, entry: &ServerEntry<'_>) -> Option<bool> {
        let is = |(project, name, _): &&(Option<String>, String, bool)| {
            project.as_deref() == entry.project && name == entry.name
        };
        self.entries.iter().find(is).map(|(_, _, is_wrapped)| *is_wrapped)
    }
}

/// Whether a user, not `adopt`, put Milepost in front of a server: Milepost is in the backup too or, without a backup,
/// in a form that `adopt` does not write.
fn is_by_hand(text: &str, entry: &ServerEntry<'_>, before: &Earlier) -> bool {
    let Some(form) = entry::wrapped_by(text, entry.object) else { return false };
    before.is_wrapped(entry).unwrap_or(form == WrappedBy::Hand)
}

/// Returns the new text, checked by reading it again, with a preview of the changes.
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
