//! The faults of a settings file in a form for people and programs: each has its position, its key, the faulty line
//! with marks below, and a corrected text.

use std::fmt::{self, Write};

use super::diagnostics::{self, ConfigError};
use crate::progress::clients::is_unprintable;

/// Limit of the characters of a line that is shown. A longer line is not shown.
const EXCERPT_MAX: usize = 160;

/// One fault in the text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFault {
    /// The line, from 1.
    pub line: usize,
    /// The column, in characters, from 1.
    pub column: usize,
    /// The key, such as `heartbeat.after`, if the text is TOML.
    pub key: Option<String>,
    /// What is wrong, and a text that would be right.
    pub message: String,
    /// The line of the file, and a line with marks below it; `None` if the line is empty, too long, or may hold a secret.
    pub excerpt: Option<String>,
}

impl PolicyFault {
    /// The fault for an error in `text`. `key`: the key at the position of the error, if known.
    pub fn of(text: &str, error: ConfigError, key: Option<String>) -> Self {
        let at = text.floor_char_boundary(error.at);
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        let width = diagnostics::width_at(text, at);
        Self {
            line,
            column: before[line_start..].chars().count() + 1,
            message: diagnostics::at_key(key.as_deref(), error.what),
            excerpt: excerpt(&text[line_start..], line, at - line_start, width, key.as_deref()),
            key,
        }
    }
}

/// Writes position, key and message: `3:9: heartbeat.after: ...`.
impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.line, self.column)?;
        if let Some(key) = &self.key {
            write!(f, " {key}:")?;
        }
        write!(f, " {}", self.message)
    }
}

/// All errors in the text of a policy: at least one, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFaults {
    faults: Vec<PolicyFault>,
}

impl PolicyFaults {
    /// The errors of a text.
    pub(super) fn of(text: &str, errors: Vec<ConfigError>) -> Self {
        let fault = |error: ConfigError| {
            let key = diagnostics::key_at(text, error.at);
            PolicyFault::of(text, error, key)
        };
        Self { faults: errors.into_iter().map(fault).collect() }
    }

    /// Every fault.
    pub fn all(&self) -> &[PolicyFault] {
        &self.faults
    }
}

/// Writes one line for each fault.
impl fmt::Display for PolicyFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.faults.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n" })?;
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyFaults {}

/// Returns the first line of `text`, and a line with marks below `width` bytes from `at` on. The value of a key that
/// may be a secret is left out.
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
        // Without a plain key before the `=`, any part of the line may belong to the secret.
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

/// Whether a text is only the key of a line. If the `=` after the key is missing, the text also contains a part of the
/// value.
fn is_key(text: &str) -> bool {
    let text = text.trim();
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || "_-.\"'".contains(sign);
    text.chars().all(is_part) && text.matches(['"', '\'']).count().is_multiple_of(2)
}

/// Whether the line of a file may contain a secret, which must not appear on a terminal or in a log.
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
        // The line belongs to a string or a list that began on an earlier line.
        || (!line.contains('=') && !line.trim_start().starts_with('['))
        || WORDS.iter().any(|word| line.contains(word))
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
