//! The faults of a route file, for people and scripts: each with its location, its key, the line with marks below it,
//! and the expected text.

use std::fmt;
use std::path::{Path, PathBuf};

use super::schema;
use crate::policy_file::diagnostics::{self, ConfigError};
use crate::policy_file::fault::PolicyFault;

/// How bad a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but probably does not do what its author intends.
    Warning,
}

/// One fault of a route file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1, if the fault has a place.
    pub line: Option<usize>,
    /// The column, in characters, from 1.
    pub column: Option<usize>,
    /// The key, such as `route.upstream.command`, if the text is TOML.
    pub key: Option<String>,
    /// What is wrong, and what is expected instead.
    pub message: String,
    /// How bad the fault is.
    pub severity: Severity,
    /// The line of the file, and the line with marks below it.
    excerpt: Option<String>,
}

impl ConfigFault {
    /// Returns the fault for an error in the text of a file. `key`: the key at its location, if it is known.
    pub(super) fn of(path: &Path, text: &str, error: ConfigError, key: Option<String>) -> Self {
        let what = schema::reword(key.as_deref(), error.what);
        let PolicyFault { line, column, key, message, excerpt } =
            PolicyFault::of(text, ConfigError { what, ..error }, key);
        Self {
            file: path.to_owned(),
            line: Some(line),
            column: Some(column),
            key,
            message,
            severity: Severity::Error,
            excerpt,
        }
    }

    /// A warning about the whole file.
    pub fn of_file(path: &Path, message: String) -> Self {
        Self {
            file: path.to_owned(),
            line: None,
            column: None,
            key: None,
            message,
            severity: Severity::Warning,
            excerpt: None,
        }
    }

    /// Returns the same fault as a warning.
    pub(super) fn into_warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// Returns the fault with its line of the file, for a terminal.
    pub fn report(&self) -> String {
        let word = if self.severity == Severity::Warning { "warning: " } else { "" };
        let excerpt = self.excerpt.as_deref().unwrap_or_default();
        format!("milepost: {word}{self}\n{excerpt}")
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "{line}:{column}:")?;
        }
        if let Some(key) = &self.key {
            write!(f, " {key}:")?;
        }
        write!(f, " {}", self.message)
    }
}

/// The faults that make a route file unusable: at least one, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFaults {
    faults: Vec<ConfigFault>,
}

impl ConfigFaults {
    /// The errors of a text of TOML.
    pub(super) fn of(path: &Path, text: &str, errors: Vec<ConfigError>) -> Self {
        let fault = |error: ConfigError| {
            let key = diagnostics::key_at(text, error.at);
            ConfigFault::of(path, text, error, key)
        };
        Self { faults: errors.into_iter().map(fault).collect() }
    }

    /// One fault.
    pub(super) fn one(fault: ConfigFault) -> Self {
        Self { faults: vec![fault] }
    }

    /// Every fault.
    pub fn all(&self) -> &[ConfigFault] {
        &self.faults
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(first) = self.faults.first() {
            write!(f, "{first}")?;
        }
        match self.faults.len().saturating_sub(1) {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more error; `milepost check` shows it)"),
            more => write!(f, " (and {more} more errors; `milepost check` shows them)"),
        }
    }
}
