//! Values written as TOML: strings, keys, lists and tables on one line.

use serde_json::Value;

use crate::progress::policy::ask::Members;

/// Writes a string of a route file as TOML; a member of an object comes with its name, by which
/// secrets are known.
pub type ShowText<'a> = &'a dyn Fn(Option<&str>, &str) -> String;

/// `text` as a TOML string.
pub(crate) fn plain(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// `name` as a TOML key.
pub(crate) fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) {
        return name.to_owned();
    }
    // Keys know no strings of several lines.
    String::from_utf8_lossy(&crate::protocol::json::quote(name)).replace('\u{7f}', "\\u007f")
}

/// A TOML list.
pub(crate) fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

/// An inline TOML table.
pub(crate) fn table(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    if items.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", items.join(", ")) }
}

/// Members of a JSON object as a TOML table.
pub(crate) fn object(members: &Members, show: ShowText<'_>) -> String {
    table(members.iter().map(|(name, one)| format!("{} = {}", key(name), value(name, one, show))))
}

fn value(name: &str, one: &Value, show: ShowText<'_>) -> String {
    match one {
        Value::String(text) => show(Some(name), text),
        Value::Array(elements) => list(elements.iter().map(|one| value(name, one, show))),
        Value::Object(members) => object(members, show),
        scalar => scalar.to_string(),
    }
}
