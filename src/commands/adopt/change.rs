//! The change of a client's file: its new text, and the report about it.

use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::AdoptError;
use super::entry::Choice;
use super::file::{ClientFile, OlderBackup};
use super::our_command::{OurCommand, PACKAGE, ProgramReach, is_on_path};
use super::repository::Sharing;
use super::show::plain;
use crate::commands::args::AdoptArgs;
use crate::config::values::nearest;

/// Variables that name the directory of an activated environment. Its programs are on the `PATH` of one shell only.
const ENVIRONMENTS: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];

/// The result for one server.
#[derive(Debug, Clone)]
pub(super) struct ServerFate {
    /// The name of the server, with the folder that it is for.
    pub(super) title: String,
    /// One word for machines: `wrapped`, `unwrapped`, `unchanged` or `left`.
    pub(super) action: &'static str,
    /// The result as text.
    pub(super) words: String,
}

impl ServerFate {
    pub(super) fn new(title: &str, action: &'static str, words: impl Into<String>) -> Self {
        Self { title: title.to_owned(), action, words: words.into() }
    }
}

/// The change of a file.
#[derive(Debug)]
pub(super) struct Change {
    /// For a person to read.
    pub(super) report: String,
    /// The new text, if there are changes.
    pub(super) text: Option<String>,
    pub(super) older_backup: OlderBackup,
    fates: Vec<ServerFate>,
}

impl Change {
    /// Makes the change of a file that is not JSON.
    pub(super) fn of_other(
        terms: &FileTerms<'_>,
        fates: Vec<ServerFate>,
        shown: &str,
        text: Option<String>,
    ) -> Self {
        let mut change = Self { text, ..Self::begin(terms, fates) };
        change.report += shown;
        if change.text.is_none() {
            change.report += "Nothing changes.\n";
        }
        change
    }

    /// Begins the change of a JSON file, whose new text is not known yet.
    pub(super) fn begin(terms: &FileTerms<'_>, fates: Vec<ServerFate>) -> Self {
        let mut change =
            Self { report: terms.head(), text: None, older_backup: OlderBackup::Replaced, fates };
        for fate in &change.fates {
            let _ = writeln!(change.report, "  {}: {}", plain(&fate.title), fate.words);
        }
        change
    }

    /// Returns the change as JSON, for `--json`.
    pub(super) fn json(&self, path: &Path, file: &ClientFile, sharing: &Sharing) -> Value {
        let servers = self
            .fates
            .iter()
            .map(|fate| json!({ "name": fate.title, "action": fate.action, "words": fate.words }));
        json!({
            "file": path.display().to_string(),
            "repository": sharing.repository().map(|folder| folder.display().to_string()),
            "readOnly": file.is_read_only(),
            "changes": self.text.is_some(),
            "servers": servers.collect::<Vec<_>>(),
        })
    }
}

/// A file to be changed, and what is known about it.
pub(super) struct FileTerms<'a> {
    pub(super) args: &'a AdoptArgs,
    pub(super) path: &'a Path,
    pub(super) sharing: &'a Sharing,
    /// The text of the backup, if a backup exists.
    pub(super) backup: Option<&'a str>,
}

impl FileTerms<'_> {
    /// Returns the first lines of a report: the file, and who shares the file.
    pub(super) fn head(&self) -> String {
        let mut head = format!("{}\n", plain(&self.path.display().to_string()));
        if let Some(folder) = self.sharing.repository() {
            let folder = plain(&folder.display().to_string());
            let servers = match self.args.undo {
                true => "",
                false => "its servers are to start `milepost` by its name, and ",
            };
            let _ = writeln!(
                head,
                "  the repository {folder} may share this file: {servers}the backup is kept outside"
            );
        } else if self.args.milepost.is_none()
            && self.our_command().is_ok_and(|ours| ours.program == PACKAGE)
        {
            head += "  `milepost` is started by its name; if the client's PATH is shorter, give \
                     --milepost and the full path\n";
        }
        head
    }

    /// Returns how the user chose a server; `None` if the server is not to be changed.
    pub(super) fn choice(&self, name: &str) -> Option<Choice> {
        match &self.args.servers[..] {
            [] => Some(Choice::WithAll),
            named => named.iter().any(|named| named == name).then_some(Choice::ByName),
        }
    }

    /// Returns the command that the client is to start in front of its servers.
    pub(super) fn our_command(&self) -> Result<OurCommand, AdoptError> {
        if self.args.undo {
            return Ok(OurCommand::direct(""));
        }
        let Some(given) = self.args.milepost.as_deref() else {
            let exe = env::current_exe().map_err(|error| {
                AdoptError::Program(format!(
                    "the path of this program is not known ({error}); give a path"
                ))
            })?;
            let folder = |name: &str| Some(PathBuf::from(env::var_os(name)?));
            let environments: Vec<_> =
                ENVIRONMENTS.iter().filter_map(|name| folder(name)).collect();
            let environments: Vec<&Path> = environments.iter().map(PathBuf::as_path).collect();
            let paths = env::var_os("PATH").unwrap_or_default();
            let reach = match self.sharing.repository() {
                Some(_) => ProgramReach::Shared,
                None if is_on_path(&exe, &paths, &environments) => ProgramReach::OnPath,
                None => ProgramReach::ByPath,
            };
            return OurCommand::of_running(&exe, reach);
        };
        // A relative path becomes absolute, because the client starts the program in another directory.
        if given.components().count() > 1 && given.exists() {
            return OurCommand::named(&std::path::absolute(given)?);
        }
        OurCommand::named(given)
    }

    /// Checks that every server named with `--server` exists in the file.
    pub(super) fn all_known(&self, names: &[&str]) -> Result<(), AdoptError> {
        // With several files, another file may have the server.
        if self.args.file.is_none() {
            return Ok(());
        }
        for name in &self.args.servers {
            if names.contains(&&**name) {
                continue;
            }
            let mut known = names.to_vec();
            known.dedup();
            let known = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("the servers are {}", plain(&known.join(", "))),
            };
            return Err(AdoptError::Unknown {
                path: self.path.to_owned(),
                name: name.clone(),
                known,
            });
        }
        Ok(())
    }
}
