//! The JSON Schema of route files, for editors.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Value, json};

use super::diagnostics::KNOWN_HERE;
use super::file::File;

/// The JSON Schema of route files, made from the types that read them.
pub fn schema() -> String {
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(tidy));
    let schema = settings.into_generator().into_root_schema_for::<File>();
    // A schema is JSON and always has a text.
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text + "\n"
}

/// Says of an unknown key to which tables it belongs, if there are any.
pub(super) fn name_tables(key: Option<&str>, what: String) -> String {
    let name = key.and_then(|key| key.rsplit('.').next()).filter(|_| what.starts_with(KNOWN_HERE));
    match name.map(tables_with) {
        Some(tables) if !tables.is_empty() => {
            format!("unknown key here; it belongs to {}", tables.join(" or "))
        }
        _ => what,
    }
}

/// The tables that have a key.
fn tables_with(key: &str) -> Vec<String> {
    let schema: Value = serde_json::from_str(&schema()).unwrap_or_default();
    let tables = [
        ("Server", "[server]"),
        ("Admin", "[admin]"),
        ("Fleet", "[fleet]"),
        ("Defaults", "[defaults]"),
        ("RouteTable", "[[route]]"),
        ("Upstream", "`upstream`"),
        ("DialectTable", "[[dialect]]"),
    ];
    let has = |name: &str| schema["$defs"][name]["properties"].get(key).is_some();
    tables.iter().filter(|(name, _)| has(name)).map(|(_, table)| (*table).to_owned()).collect()
}

/// Takes out what serde knows and TOML does not: null, for keys that are not there.
fn tidy(schema: &mut Schema) {
    let null = json!({ "type": "null" });
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = &kinds[..] {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| *choice != null);
        if let [Value::Object(only)] = &choices[..] {
            let only = only.clone();
            schema.remove("anyOf");
            for (key, value) in only {
                schema.insert(key, value);
            }
        }
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}
