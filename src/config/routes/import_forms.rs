//! The forms of servers in the files of different clients, converted to one form for the import.

use serde_json::{Map, Value, json};

use crate::policy_file::diagnostics::ConfigError;

/// Reads a configuration file of Codex.
pub(super) fn toml_file(text: &str) -> Result<Value, ConfigError> {
    let parsed: Result<toml::Value, _> = toml::from_str(text);
    let wrong = |at: usize, what: String| ConfigError { at, what };
    let file = parsed.map_err(|error| {
        wrong(error.span().map_or(0, |span| span.start), error.message().to_owned())
    })?;
    serde_json::to_value(file).map_err(|error| wrong(0, error.to_string()))
}

/// The servers that Claude Code keeps for single projects: each project with the names of its servers.
pub(super) fn servers_of_projects(file: &Value) -> Vec<(&str, Vec<&str>)> {
    let projects = file.get("projects").and_then(Value::as_object);
    projects
        .into_iter()
        .flatten()
        .filter_map(|(path, project)| {
            let servers = project.get("mcpServers")?.as_object()?;
            let names: Vec<&str> = servers.keys().map(String::as_str).collect();
            (!names.is_empty()).then_some((path.as_str(), names))
        })
        .collect()
}

/// Returns a server in the form of most clients: `command` is a string beside `args`, `env`, `headers`. opencode has
/// one list for command and arguments, the older form of Zed an object, and Codex its own names for headers.
pub(super) fn plain_form(server: &Value) -> Value {
    let mut plain = server.clone();
    let Some(members) = plain.as_object_mut() else { return plain };
    match server.get("command") {
        Some(Value::Array(words)) => {
            let mut words = words.iter().cloned();
            members.insert("command".to_owned(), words.next().unwrap_or_default());
            members.insert("args".to_owned(), words.collect());
        }
        Some(Value::Object(inner)) if inner.contains_key("path") => {
            for (from, to) in [("path", "command"), ("args", "args"), ("env", "env")] {
                if let Some(value) = inner.get(from) {
                    members.insert(to.to_owned(), value.clone());
                }
            }
        }
        _ => {}
    }
    if let Some(variables) = members.remove("environment") {
        members.insert("env".to_owned(), variables);
    }
    if server.get("enabled") == Some(&Value::Bool(false)) {
        members.insert("disabled".to_owned(), true.into());
    }
    members.remove("enabled");
    // In opencode these words repeat what `command` and `url` already say.
    if matches!(server.get("type").and_then(Value::as_str), Some("local" | "remote")) {
        members.remove("type");
    }
    let mut headers = match members.remove("http_headers") {
        Some(Value::Object(headers)) => headers,
        _ => Map::new(),
    };
    if let Some(Value::Object(variables)) = members.remove("env_http_headers") {
        // Codex names a variable for each header. A route file refers to the variable in the header's value.
        let filled = variables.into_iter().filter_map(|(header, variable)| {
            Some((header, format!("${{{}}}", variable.as_str()?).into()))
        });
        headers.extend(filled);
    }
    if let Some(Value::String(variable)) = members.remove("bearer_token_env_var") {
        headers.insert("Authorization".to_owned(), format!("Bearer ${{{variable}}}").into());
    }
    if !headers.is_empty() {
        members.insert("headers".to_owned(), json!(headers));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(server: Value, expected: Value) {
        assert_eq!(plain_form(&server), expected);
    }

    #[test]
    fn the_forms_of_clients_become_one() {
        check(
            json!({ "type": "local", "command": ["npx", "-y", "x"], "environment": { "A": "1" }, "enabled": false }),
            json!({ "command": "npx", "args": ["-y", "x"], "env": { "A": "1" }, "disabled": true }),
        );
        check(
            json!({ "command": { "path": "node", "args": ["x.js"] } }),
            json!({ "command": "node", "args": ["x.js"] }),
        );
        check(
            json!({ "url": "https://a.b", "bearer_token_env_var": "T", "env_http_headers": { "X-A": "A" } }),
            json!({ "url": "https://a.b", "headers": { "Authorization": "Bearer ${T}", "X-A": "${A}" } }),
        );
    }
}
