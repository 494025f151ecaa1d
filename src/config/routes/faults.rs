//! The faults of a route file as people and scripts read them: each with its place, its key, the line
//! with marks below, and a text that would be right.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use super::diagnostics::{self, ConfigError};
use super::schema;
use crate::progress::clients::is_unprintable;

/// Characters of a line of the file that are shown. A longer line is not shown.
const EXCERPT_MAX: usize = 160;

/// How bad a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, and its author may not mean it so.
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
    /// The key, such as `route.upstream.command`, where the text is TOML.
    pub key: Option<String>,
    /// The fault, and a text that would be right.
    pub message: String,
    /// How bad it is.
    pub severity: Severity,
    /// The line of the file, and the line with marks below it.
    excerpt: Option<String>,
}

impl ConfigFault {
    /// The fault for an error in the text of a file. `key`: the key at its place, if it is known.
    pub(super) fn of(path: &Path, text: &str, error: ConfigError, key: Option<String>) -> Self {
        let at = error.at.min(text.len());
        let before = text.get(..at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        let width = diagnostics::width_at(text, at);
        let what = diagnostics::at_key(key.as_deref(), error.what);
        Self {
            file: path.to_owned(),
            line: Some(line),
            column: Some(before[line_start..].chars().count() + 1),
            message: schema::name_tables(key.as_deref(), what),
            severity: Severity::Error,
            excerpt: excerpt(&text[line_start..], line, at - line_start, width, key.as_deref()),
            key,
        }
    }

    /// A warning about the whole file.
    pub(super) fn of_file(path: &Path, message: String) -> Self {
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

    /// The same fault as a warning.
    pub(super) fn into_warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// The fault with the line of the file, for a terminal.
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

/// The line at the beginning of `text`, and marks below `width` bytes from `at` on. The value of a key
/// that may be a secret is left out.
fn excerpt(
    text: &str,
    number: usize,
    at: usize,
    width: usize,
    key: Option<&str>,
) -> Option<String> {
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() || line.chars().count() > EXCERPT_MAX {
        return None;
    }
    let (mut shown, mut at, mut width) = (line.to_owned(), at.min(line.len()), width);
    if may_hold_secret(line, key) {
        let equals = line.find('=').filter(|equals| is_key(&line[..*equals]))?;
        shown = format!("{}= ***", &line[..equals]);
        if at > equals {
            (at, width) = (equals + 2, 3);
        }
    }
    let end = (at + width.max(1)).min(shown.len());
    let count = |part: Option<&str>| part.unwrap_or_default().chars().count();
    let marks = count(shown.get(at..end)).max(1);
    let indent: String =
        shown.get(..at)?.chars().map(|sign| if sign == '\t' { '\t' } else { ' ' }).collect();
    let plain = |sign: char| if sign != '\t' && is_unprintable(sign) { '\u{fffd}' } else { sign };
    let shown: String = shown.chars().map(plain).collect();
    let mut out = String::new();
    let _ = writeln!(out, "{number:>5} | {shown}\n      | {indent}{}", "^".repeat(marks));
    Some(out)
}

/// Whether this is the key of a line, and not also a part of the value: the `=` behind the key may be missing.
fn is_key(text: &str) -> bool {
    let text = text.trim();
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || "_-.\"'".contains(sign);
    text.chars().all(is_part) && text.matches(['"', '\'']).count().is_multiple_of(2)
}

/// Whether the line of a file may hold a secret, which no terminal and no log shows.
fn may_hold_secret(line: &str, key: Option<&str>) -> bool {
    const WORDS: [&str; 12] = [
        "auth",
        "bearer",
        "cookie",
        "credential",
        "env",
        "header",
        "key",
        "password",
        "secret",
        "set",
        "token",
        "user",
    ];
    let line = line.to_lowercase();
    let value = line.split_once('=').map_or(&*line, |(_, value)| value);
    let is_credential = value.contains("://") && (value.contains('@') || value.contains('?'));
    key.is_some_and(diagnostics::is_secret)
        || is_credential
        // The line of a string or a list that began above.
        || (!line.contains('=') && !line.trim_start().starts_with('['))
        || WORDS.iter().any(|word| line.contains(word))
}

/// The faults that make a route file unusable: at least one, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFaults(Vec<ConfigFault>);

impl ConfigFaults {
    /// The errors of a text of TOML.
    pub(super) fn of(path: &Path, text: &str, errors: Vec<ConfigError>) -> Self {
        let fault = |error: ConfigError| {
            let key = diagnostics::key_at(text, error.at);
            ConfigFault::of(path, text, error, key)
        };
        Self(errors.into_iter().map(fault).collect())
    }

    /// One fault.
    pub(super) fn one(fault: ConfigFault) -> Self {
        Self(vec![fault])
    }

    /// Every fault.
    pub fn all(&self) -> &[ConfigFault] {
        &self.0
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(first) = self.0.first() {
            write!(f, "{first}")?;
        }
        match self.0.len().saturating_sub(1) {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more error; `milepost check` shows it)"),
            more => write!(f, " (and {more} more errors; `milepost check` shows them)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_line_with_a_secret_only_the_key_is_shown() {
        for (line, shown) in [
            ("bearer = \"hidden\"", Some("bearer = ***")),
            ("  set.\"x-key\" = \"hidden\"", Some("  set.\"x-key\" = ***")),
            ("bearer \"hidden=\"", None),
            ("bearer\"hidden=\"", None),
            ("bearer hidden=", None),
            ("upstream.url \"http://user:hidden@host/mcp?key=x\"", None),
            ("upstream.command [\"server\", \"--password\", \"hidden\", \"--token=x\"]", None),
            ("listen = 1", Some("listen = 1")),
        ] {
            let excerpt = excerpt(line, 7, 0, 1, None);
            let expected = shown.map(|shown| format!("    7 | {shown}\n"));
            let first =
                excerpt.map(|text| text.lines().next().unwrap_or_default().to_owned() + "\n");
            assert_eq!(first, expected, "{line}");
        }
    }
}
