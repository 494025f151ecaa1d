//! Errors in a settings file: the position, the key, and a message that names the right value.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::values::nearest;

/// An error, and its place in the text.
#[derive(Debug)]
pub struct ConfigError {
    /// The position of the error, in bytes from the beginning of the text.
    pub at: usize,
    /// What is wrong, and the form that would be right.
    pub what: String,
}

impl ConfigError {
    /// Returns the error at the beginning of `span`.
    pub fn new(span: Range<usize>, what: impl Into<String>) -> Self {
        Self { at: span.start, what: what.into() }
    }

    /// Returns serde's error about a value at `span`, in Milepost's words.
    pub fn within(span: Range<usize>, error: toml::de::Error) -> Self {
        Self::new(error.span().unwrap_or(span), reword(error.message()))
    }

    /// Returns the error for a key that the table does not have.
    pub fn unknown_key(span: Range<usize>, key: &str, known: &[&str]) -> Self {
        Self::new(span, unknown_key(key, known))
    }
}

impl From<toml::de::Error> for ConfigError {
    fn from(error: toml::de::Error) -> Self {
        Self::within(0..0, error)
    }
}

/// Returns the error for a value that is neither a table nor a list, with serde's description.
pub fn reject(value: Spanned<DeValue<'_>>, expected: &str) -> ConfigError {
    struct Reject<'a>(&'a str);
    impl<'de> Visitor<'de> for Reject<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }
    let span = value.span();
    match ValueDeserializer::from(value).deserialize_any(Reject(expected)) {
        Ok(()) => ConfigError::new(span, format!("{expected} is expected")),
        Err(error) => ConfigError::within(span, error),
    }
}

/// Whether the value of a key may be a secret.
pub fn is_secret(key: &str) -> bool {
    key.ends_with(".bearer") || key.contains(".env.") || key.contains(".set.")
}

/// Rewrites serde's message in Milepost's words.
fn reword(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field") {
        let unknown = quoted.next().unwrap_or_default();
        return unknown_key(unknown, &quoted.collect::<Vec<_>>());
    }
    if message.starts_with("missing field") {
        return format!("`{}` is missing", quoted.next().unwrap_or_default());
    }
    let found =
        message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "));
    let Some((found, expected)) = found else { return message.to_owned() };
    format!("{} is expected, not {}", kind(expected), kind(found))
}

/// The beginning of the error for an unknown key that is not similar to a known key.
pub const KNOWN_HERE: &str = "unknown key; known here: ";

fn unknown_key(key: &str, known: &[&str]) -> String {
    match nearest(key, known.iter().copied()) {
        Some(near) => format!("unknown key; did you mean `{near}`?"),
        None => format!("{KNOWN_HERE}{}", known.join(", ")),
    }
}

/// The kind of a value as TOML calls it.
fn kind(name: &str) -> &str {
    match name {
        "a boolean" => "true or false",
        "a sequence" | "sequence" => "a list",
        "a map" | "map" => "a table",
        name if name.starts_with("struct ") => "a table",
        name => name,
    }
}

/// The key of the dialects that a file describes itself.
pub const DIALECT: &str = "dialect";

/// The end of the error for a single table where a list of tables is expected.
pub const NOT_A_TABLE: &str = ", not a table";

/// Returns the error for a single table where a list of tables is expected, such as `[dialect]`.
pub fn several_tables(table: &str) -> String {
    format!("[[{table}]] is expected, not [{table}]: there may be several")
}

/// Returns the message of an error at `key`, without the value if the value may be a secret.
pub fn at_key(key: Option<&str>, what: String) -> String {
    if let Some(table @ DIALECT) = key
        && what.ends_with(NOT_A_TABLE)
    {
        return several_tables(table);
    }
    match what.split_once(" is expected, not ") {
        // The second half of the message quotes the value, which may be a secret.
        Some((expected, _)) if key.is_some_and(is_secret) => format!("{expected} is expected"),
        _ => what,
    }
}

/// Returns the key at a position in a text, such as `route.upstream.command`; `None` if the text is not TOML.
pub fn key_at(text: &str, at: usize) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    let mut narrowest = None;
    search(table.get_ref(), "", at, &mut narrowest);
    narrowest.map(|(_, key)| key)
}

/// Returns the number of bytes from a position to the end of the key or value there, on the same line; at least 1.
pub fn width_at(text: &str, at: usize) -> usize {
    let mut narrowest = None;
    if let Ok(table) = DeTable::parse(text) {
        search(table.get_ref(), "", at, &mut narrowest);
    }
    let end = narrowest.map_or(at + 1, |(span, _)| span.end);
    let rest = text.get(at..end).unwrap_or_default();
    rest.lines().next().unwrap_or_default().trim_end().len().max(1)
}

/// The narrowest part found so far: its range in the text, and its key.
type Narrowest = Option<(Range<usize>, String)>;

fn search(table: &DeTable<'_>, above: &str, at: usize, narrowest: &mut Narrowest) {
    for (key, value) in table {
        let path = match above {
            "" => key.get_ref().to_string(),
            above => format!("{above}.{}", key.get_ref()),
        };
        for span in [key.span(), value.span()] {
            if span.contains(&at)
                && narrowest.as_ref().is_none_or(|(narrow, _)| span.len() <= narrow.len())
            {
                *narrowest = Some((span, path.clone()));
            }
        }
        search_value(value.get_ref(), &path, at, narrowest);
    }
}

fn search_value(value: &DeValue<'_>, path: &str, at: usize, narrowest: &mut Narrowest) {
    match value {
        DeValue::Table(table) => search(table, path, at, narrowest),
        DeValue::Array(elements) => {
            for element in elements {
                let span = element.span();
                if span.contains(&at)
                    && narrowest.as_ref().is_none_or(|(narrow, _)| span.len() <= narrow.len())
                {
                    *narrowest = Some((span, path.to_owned()));
                }
                search_value(element.get_ref(), path, at, narrowest);
            }
        }
        _ => {}
    }
}
