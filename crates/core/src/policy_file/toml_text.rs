//! Values written as TOML: strings, keys, lists and tables on one line.

use serde_json::Value;

/// Writes a string of a route file as TOML. The first argument is the name, if the string is a member of an object:
/// secrets are recognized by their names.
pub type ShowText<'a> = &'a dyn Fn(Option<&str>, &str) -> String;

/// Writes `text` as a TOML string.
pub fn plain(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Writes `name` as a TOML key.
pub fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) {
        return name.to_owned();
    }
    // `toml` may write a string over several lines, which is not allowed in a key. JSON's escapes are valid in TOML;
    // only U+007F must be escaped in addition.
    String::from_utf8_lossy(&crate::protocol::json::quote(name)).replace('\u{7f}', "\\u007f")
}

/// Writes a TOML list.
pub fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

/// Writes an inline TOML table.
pub fn table(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    if items.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", items.join(", ")) }
}

/// Writes a JSON value as TOML, on one line. A string at the top level is written unchanged.
pub fn inline(value: &Value, show: ShowText<'_>) -> String {
    match value {
        Value::String(text) => plain(text),
        value => within(None, value, show),
    }
}

/// Writes a value within another value. An element of a list is shown under the name of the list.
fn within(name: Option<&str>, value: &Value, show: ShowText<'_>) -> String {
    match value {
        Value::String(text) => show(name, text),
        Value::Array(elements) => list(elements.iter().map(|one| within(name, one, show))),
        Value::Object(members) => table(
            members
                .iter()
                .map(|(name, one)| format!("{} = {}", key(name), within(Some(name), one, show))),
        ),
        scalar => scalar.to_string(),
    }
}
