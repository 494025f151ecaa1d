//! The arguments that a tool requires, according to the `inputSchema` in the server's list of tools.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::DoctorError;
use super::findings::shown;

/// The `inputSchema` of each listed tool, by the name of the tool.
#[derive(Debug, Default)]
pub(super) struct RequiredArguments(BTreeMap<String, Value>);

impl RequiredArguments {
    /// Notes the tools of one page of the list.
    pub(super) fn note(&mut self, page: &Value) {
        for tool in page["tools"].as_array().into_iter().flatten() {
            if let Some(name) = tool["name"].as_str() {
                self.0.insert(name.to_owned(), tool["inputSchema"].clone());
            }
        }
    }

    /// Checks that the arguments of a call have all members that the tool requires.
    ///
    /// # Errors
    /// The missing members, and arguments that have them.
    pub(super) fn check(&self, tool: &str, given: &Map<String, Value>) -> Result<(), DoctorError> {
        let Some(schema) = self.0.get(tool) else { return Ok(()) };
        let required =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let missing: Vec<&str> = required.filter(|name| !given.contains_key(*name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut complete = given.clone();
        for name in &missing {
            complete.insert((*name).to_owned(), example(&schema["properties"][*name]));
        }
        // A single quote ends a quoted word of a shell, so it is written outside of the quotes.
        let arguments = Value::from(complete).to_string().replace('\'', r"'\''");
        Err(DoctorError::MissingArguments {
            tool: shown(tool.as_bytes()),
            missing: shown(missing.join(", ").as_bytes()),
            arguments: shown(arguments.as_bytes()),
        })
    }
}

/// Returns a value that fits a schema of a member: one that the schema names, or one of its type.
fn example(schema: &Value) -> Value {
    let named = [&schema["const"], &schema["default"], &schema["examples"][0], &schema["enum"][0]];
    if let Some(value) = named.into_iter().find(|value| !value.is_null()) {
        return value.clone();
    }
    // `type` may be a list of types.
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("integer" | "number") => match &schema["minimum"] {
            Value::Number(minimum) if minimum.as_f64() > Some(1.0) => minimum.clone().into(),
            _ => 1.into(),
        },
        Some("boolean") => true.into(),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => "text".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_arguments_are_named_with_values_of_their_types() {
        let schema = json!({
            "properties": {
                "liters": { "type": "integer" },
                "kind": { "enum": ["ale", "it's"] },
                "dry": { "type": ["boolean", "null"] },
                "least": { "type": "number", "minimum": 2.5 },
            },
            "required": ["liters", "kind", "dry", "least", "note"],
        });
        let mut tools = RequiredArguments::default();
        tools.note(&json!({ "tools": [
            { "name": "brew", "inputSchema": schema },
            { "name": "plain" },
            { "name": "free", "inputSchema": { "type": "object", "required": [] } },
        ] }));
        let given = |value: Value| value.as_object().cloned().unwrap();
        for tool in ["plain", "free", "unknown"] {
            assert!(tools.check(tool, &Map::new()).is_ok(), "{tool}");
        }
        let missing =
            tools.check("brew", &given(json!({ "note": 1, "kind": "it's" }))).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "the tool brew requires arguments that are missing: liters, dry, least; write --args \
             '{\"dry\":true,\"kind\":\"it'\\''s\",\"least\":2.5,\"liters\":1,\"note\":1}'"
        );
        let all = json!({ "liters": 1, "kind": "ale", "dry": null, "least": 3, "note": "x" });
        assert!(tools.check("brew", &given(all)).is_ok());
    }
}
