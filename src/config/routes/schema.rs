//! The JSON Schema of route files, for editors.

use serde_json::Value;

use crate::policy_file::diagnostics::{KNOWN_HERE, NOT_A_TABLE, several_tables};

/// Returns the JSON Schema of route files. A test generates the text from the types that read route files. The program
/// only includes it, because the code that describes types would be a twentieth of all compiled code.
pub fn schema() -> &'static str {
    include_str!("../../../proxy.schema.json")
}

/// Rewrites an error for which the whole file is needed: routes are a list of tables, and an unknown key may belong to
/// another table.
pub(super) fn reword(key: Option<&str>, what: String) -> String {
    match key {
        Some(table @ "route") if what.ends_with(NOT_A_TABLE) => several_tables(table),
        Some("server.token" | "admin.token") if what.starts_with(KNOWN_HERE) => {
            "unknown key here; did you mean `bearer`, the token that clients present?".to_owned()
        }
        key => name_tables(key, as_list(key, what)),
    }
}

/// Rewrites the error for a command in one text: shows the same words as a list.
fn as_list(key: Option<&str>, what: String) -> String {
    let is_command = key.is_some_and(|key| key.ends_with(".command"));
    let line = what.strip_prefix("a list is expected, not string \"").filter(|_| is_command);
    match line.and_then(|line| line.strip_suffix('"')).filter(|line| !line.contains(['"', '\\'])) {
        Some(line) => {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{what}; write {words:?}")
        }
        None => what,
    }
}

/// Adds the tables that have an unknown key to its error, if there are any.
fn name_tables(key: Option<&str>, what: String) -> String {
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
    let schema: Value = serde_json::from_str(schema()).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use schemars::Schema;
    use schemars::generate::SchemaSettings;
    use schemars::transform::RecursiveTransform;
    use serde_json::{Value, json};

    use super::super::file::File;

    #[test]
    fn the_schema_is_that_of_the_types_that_read_route_files() {
        let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(tidy));
        let schema = settings.into_generator().into_root_schema_for::<File>();
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("proxy.schema.json");
            std::fs::write(place, text).unwrap();
            return;
        }
        assert!(text == super::schema(), "UPDATE_EXPECT=1 writes proxy.schema.json anew");
    }

    /// Removes null for missing keys from a schema: serde accepts null, but TOML has none.
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
}
