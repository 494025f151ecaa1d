//! Errors of a route file: the position, the key, and a message that names the right value.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::schema;
use crate::config::values::nearest;

/// What is wrong, and where in the text.
#[derive(Debug)]
pub(super) struct ConfigError {
    pub(super) at: usize,
    pub(super) what: String,
}

impl ConfigError {
    pub(super) fn new(span: Range<usize>, what: impl Into<String>) -> Self {
        Self { at: span.start, what: what.into() }
    }
}

impl From<toml::de::Error> for ConfigError {
    fn from(error: toml::de::Error) -> Self {
        Self::new(error.span().unwrap_or(0..0), reword(error.message()))
    }
}

/// Whether what stands at a key may be a secret.
fn is_secret(key: &str) -> bool {
    matches!(key, "server.bearer" | "admin.bearer")
        || key.contains(".env.")
        || key.contains(".set.")
}

/// What serde says, in our words.
fn reword(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field") {
        let unknown = quoted.next().unwrap_or_default();
        let known: Vec<&str> = quoted.collect();
        return match nearest(unknown, known.iter().copied()) {
            Some(near) => format!("unknown key; did you mean `{near}`?"),
            None => match schema::tables_with(unknown) {
                tables if tables.is_empty() => {
                    format!("unknown key; known here: {}", known.join(", "))
                }
                tables => format!("unknown key here; it belongs to {}", tables.join(" or ")),
            },
        };
    }
    if message.starts_with("missing field") {
        return format!("`{}` is missing", quoted.next().unwrap_or_default());
    }
    let found =
        message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "));
    let Some((found, expected)) = found else { return message.to_owned() };
    format!("{} is expected, not {}", kind(expected), kind(found))
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

/// What is wrong at `key`, without the value that stands there if it may be a secret.
pub(super) fn at_key(key: Option<&str>, what: String) -> String {
    if let Some(table @ ("route" | "dialect")) = key
        && what.ends_with(", not a table")
    {
        return format!("[[{table}]] is expected, not [{table}]: there may be several");
    }
    match what.split_once(" is expected, not ") {
        Some((expected, _)) if key.is_some_and(is_secret) => format!("{expected} is expected"),
        _ => what,
    }
}

/// The key at a place of a text, such as `route.upstream.command`; `None` where the text is no TOML.
pub(super) fn key_at(text: &str, at: usize) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    let mut narrowest = None;
    search(table.get_ref(), "", at, &mut narrowest);
    narrowest.map(|(_, key)| key)
}

fn search(table: &DeTable<'_>, above: &str, at: usize, narrowest: &mut Option<(usize, String)>) {
    for (key, value) in table {
        let path = match above {
            "" => key.get_ref().to_string(),
            above => format!("{above}.{}", key.get_ref()),
        };
        for span in [key.span(), value.span()] {
            if span.contains(&at)
                && narrowest.as_ref().is_none_or(|(width, _)| span.len() <= *width)
            {
                *narrowest = Some((span.len(), path.clone()));
            }
        }
        search_value(value.get_ref(), &path, at, narrowest);
    }
}

fn search_value(
    value: &DeValue<'_>,
    path: &str,
    at: usize,
    narrowest: &mut Option<(usize, String)>,
) {
    match value {
        DeValue::Table(table) => search(table, path, at, narrowest),
        DeValue::Array(elements) => {
            for element in elements {
                let span = element.span();
                if span.contains(&at)
                    && narrowest.as_ref().is_none_or(|(width, _)| span.len() <= *width)
                {
                    *narrowest = Some((span.len(), path.to_owned()));
                }
                search_value(element.get_ref(), path, at, narrowest);
            }
        }
        _ => {}
    }
}
