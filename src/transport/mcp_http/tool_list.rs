//! Turns a hand-written server's list of tools into a result of `tools/list`.

use bytes::Bytes;

use crate::protocol::json;

/// The input schema of a tool that has none, because clients refuse a whole list if one tool has no schema.
const ANYTHING: &[u8] = br#"{"type":"object"}"#;

/// Other names of a tool's input schema, from the time before the specification or from other systems.
const OTHER_NAMES: [&str; 2] = ["input_schema", "parameters"];

/// Returns the result of `tools/list`, made from `{"tools":[...]}`, a plain array, or a JSON-RPC answer with either;
/// `None` for other text. Tools stay unchanged, except for a required schema.
pub(crate) fn of(text: &Bytes) -> Option<Bytes> {
    let text = match json::member(text, "result") {
        Some(result) => result,
        None => text.clone(),
    };
    let list = json::member(&text, "tools").unwrap_or(text);
    let (tools, end) = json::elements(&list)?;
    if json::skip_space(&list, end) != list.len() {
        return None;
    }
    let tools: Vec<Bytes> = tools.into_iter().map(|tool| with_schema(&list.slice(tool))).collect();
    let parts: [&[u8]; 3] = [br#"{"tools":["#, &tools.join(&b","[..]), b"]}"];
    Some(Bytes::from(parts.concat()))
}

/// Returns a tool whose `inputSchema` describes an object.
fn with_schema(tool: &Bytes) -> Bytes {
    let mut members = json::Members::new(tool);
    let found = members.by_ref().filter(|one| json::key_is(&tool[one.key.clone()], "inputSchema"));
    let own = found.last().map(|one| one.value);
    let Some(end) = members.end() else { return tool.clone() };
    let is_object = |text: &Bytes| text.starts_with(b"{");
    let schema = own.clone().map(|own| tool.slice(own)).filter(is_object);
    let other = || OTHER_NAMES.iter().find_map(|name| json::member(tool, name).filter(is_object));
    let schema = match schema.or_else(other) {
        None => Bytes::from_static(ANYTHING),
        Some(schema) if json::member(&schema, "type").is_some() => schema,
        Some(schema) => of_objects(&schema),
    };
    match own {
        Some(own) if tool[own.clone()] == *schema => tool.clone(),
        Some(own) => [&tool[..own.start], &schema[..], &tool[own.end..]].concat().into(),
        None => {
            let is_empty = json::Members::new(tool).next().is_none();
            let key: &[u8] = if is_empty { br#""inputSchema":"# } else { br#","inputSchema":"# };
            [&tool[..end - 1], key, &schema[..], &tool[end - 1..]].concat().into()
        }
    }
}

/// Returns a schema without a `type`, completed to a schema of objects.
fn of_objects(schema: &Bytes) -> Bytes {
    let gap: &[u8] = if json::Members::new(schema).next().is_some() { b"," } else { b"" };
    [br#"{"type":"object""#, gap, &schema[1..]].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = of(&Bytes::copy_from_slice(text.as_bytes()));
        let expected = expected.map(|tools| format!(r#"{{"tools":[{tools}]}}"#));
        assert_eq!(found.as_deref(), expected.as_deref().map(str::as_bytes), "{text}");
    }

    #[test]
    fn a_list_may_come_in_any_of_three_forms() {
        let tool = r#"{ "name":"a",  "n":1.50, "inputSchema":{"type":"object"} }"#;
        check(&format!("[{tool}]"), Some(tool));
        check(&format!(" [ {tool} , {tool} ]\n"), Some(&format!("{tool},{tool}")));
        check(&format!(r#"{{"tools":[{tool}]}}"#), Some(tool));
        check(
            &format!(r#"{{"jsonrpc":"2.0","id":null,"result":{{"tools":[{tool}]}}}}"#),
            Some(tool),
        );
        check(&format!(r#"{{"result":[{tool}]}}"#), Some(tool));
        check("[]", Some(""));
        for text in
            ["", "{}", "null", "<html>", r#"{"tools":{}}"#, r#"{"error":"no"}"#, "[{}", "[] x"]
        {
            check(text, None);
        }
    }

    #[test]
    fn a_tool_without_a_schema_of_objects_gets_one() {
        for (tool, expected) in [
            (r#"{"name":"a"}"#, r#"{"name":"a","inputSchema":{"type":"object"}}"#),
            ("{ }", r#"{ "inputSchema":{"type":"object"}}"#),
            (
                r#"{"inputSchema":null,"name":"a"}"#,
                r#"{"inputSchema":{"type":"object"},"name":"a"}"#,
            ),
            (r#"{"inputSchema":{}}"#, r#"{"inputSchema":{"type":"object"}}"#),
            (
                r#"{"inputSchema":{ "properties":{}}}"#,
                r#"{"inputSchema":{"type":"object", "properties":{}}}"#,
            ),
            (
                r#"{"parameters":{"type":"object","x":1}}"#,
                r#"{"parameters":{"type":"object","x":1},"inputSchema":{"type":"object","x":1}}"#,
            ),
            ("\"a\"", "\"a\""),
        ] {
            check(&format!("[{tool}]"), Some(expected));
        }
    }
}
