//! Arguments of tools that must be repeated in headers (2026-07-28), as the server's lists of tools say.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use litemap::LiteMap;
use serde_json::{Map, Value};

use crate::progress::Payload;
use crate::protocol::json;
use crate::protocol::json::Members;
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp;
use crate::transport::http::body::Body;
use crate::transport::mcp_http::header_mirror;

/// Limit of the tools whose header annotations are kept. Calls of further tools are sent without these headers.
const TOOLS_MAX: usize = 4096;

/// Limit of the header annotations of one tool: far more than the headers that a request may have.
const MIRRORS_MAX: usize = 64;

/// The key of a parameter's schema that names its header.
const ANNOTATION: &str = "x-mcp-header";

/// An argument that is repeated in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MirroredArgument {
    header: HeaderName,
    /// The keys that lead to the argument.
    path: Vec<String>,
}

/// The arguments that each tool of a server wants repeated in headers.
#[derive(Debug, Default)]
pub(crate) struct ToolHeaders {
    tools: LiteMap<String, Vec<MirroredArgument>>,
}

impl ToolHeaders {
    /// Learns from the answer to `tools/list`. Returns the answer without the tools whose annotations are invalid,
    /// because HTTP clients must not offer them.
    pub(crate) fn filter(&mut self, answer: Message) -> Message {
        let filtered = answer.result().and_then(|result| self.learn(&result));
        match (filtered, answer.result_range()) {
            (Some(filtered), Some(range)) => {
                Message::parse(Payload::splice(answer.raw(), range, filtered).to_bytes())
            }
            _ => answer,
        }
    }

    /// Learns from the result of `tools/list`. If some annotations are invalid, returns a result for the client without
    /// their tools.
    pub(crate) fn learn(&mut self, result: &Bytes) -> Option<Bytes> {
        let list = list_in(result)?;
        let text = result.slice(list.clone());
        let (elements, _) = json::elements(&text)?;
        let mut kept: Vec<Bytes> = Vec::new();
        for element in &elements {
            let tool = text.slice(element.clone());
            match self.learn_tool(&tool) {
                Ok(()) => kept.push(tool),
                Err((name, why)) => tracing::warn!(
                    tool = name,
                    why,
                    "a tool is left out of the list: its headers are not described as they must be"
                ),
            }
        }
        // No tool was removed, so the client gets the list as the server wrote it.
        if kept.len() == elements.len() {
            return None;
        }
        let (before, behind) = (&result[..list.start], &result[list.end..]);
        Some(Bytes::from([before, b"[", &kept.join(&b","[..])[..], b"]", behind].concat()))
    }

    /// Learns from the result of `tools/list`, for a caller that answers in the server's place.
    pub(crate) fn note(&mut self, result: &Bytes) {
        let Some(text) = list_in(result).map(|list| result.slice(list)) else { return };
        for element in json::elements(&text).map(|(elements, _)| elements).unwrap_or_default() {
            // Ignore the error: a tool with invalid annotations needs no headers.
            let _ = self.learn_tool(&text.slice(element));
        }
    }

    /// Forgets every tool.
    pub(crate) fn clear(&mut self) {
        self.tools.clear();
    }

    fn learn_tool(&mut self, tool: &Bytes) -> Result<(), (String, &'static str)> {
        let name = json::member(tool, "name");
        let Some(name) = name.and_then(|name| Some(json::decode_str(&name)?.into_owned())) else {
            return Ok(());
        };
        // The tool may have changed since the last list.
        self.tools.remove(&name);
        // Most tools have no annotation, which this search shows without parsing the schema.
        if memchr::memmem::find(tool, ANNOTATION.as_bytes()).is_none() {
            return Ok(());
        }
        let schema = json::member(tool, "inputSchema").unwrap_or_default();
        let Ok(schema) = serde_json::from_slice::<Value>(&schema) else { return Ok(()) };
        let mut found = Vec::new();
        match mirrors(&schema, &mut Some(Vec::new()), &mut found) {
            Ok(()) if found.is_empty() || self.tools.len() >= TOOLS_MAX => Ok(()),
            Ok(()) => {
                self.tools.insert(name, found);
                Ok(())
            }
            Err(why) => Err((name, why)),
        }
    }

    /// Returns the headers of a call that repeat its arguments.
    pub(crate) fn headers(&self, call: &Message) -> Vec<(HeaderName, HeaderValue)> {
        let header = |(mirror, value): (&MirroredArgument, Option<Bytes>)| {
            Some((mirror.header.clone(), header_mirror::encoded(&header_text(&value?)?)?))
        };
        self.arguments(call).into_iter().filter_map(header).collect()
    }

    /// Checks that each header of a call agrees with its argument. The error is the response. Headers that the tool
    /// does not declare are ignored (26:http §Server Behavior for Custom Headers).
    pub(crate) fn check(
        &self,
        headers: &HeaderMap,
        call: &Message,
    ) -> Result<(), Box<Response<Body>>> {
        for (mirror, value) in self.arguments(call) {
            let text = value.as_ref().and_then(header_text);
            let number = value.as_ref().and_then(Key::read);
            // Numbers are compared as numbers, because a number may be written in several ways.
            let number = number.filter(|number| !matches!(number, Key::Text(_)));
            let alike = |said: &[u8]| {
                number.is_some() && Key::read(&Bytes::copy_from_slice(said)) == number
            };
            header_mirror::compare(headers, &mirror.header, text.as_deref(), alike)
                .map_err(|why| Box::new(header_mirror::mismatch(call, &why)))?;
        }
        Ok(())
    }

    /// Returns the arguments of a call that are repeated in headers, with their values.
    fn arguments(&self, call: &Message) -> Vec<(&MirroredArgument, Option<Bytes>)> {
        let params = call.params().unwrap_or_default();
        let name = json::member(&params, "name").unwrap_or_default();
        let Some(mirrors) = json::decode_str(&name).and_then(|name| self.tools.get(&*name)) else {
            return Vec::new();
        };
        if call.method().is_none_or(|method| method != mcp::TOOLS_CALL) {
            return Vec::new();
        }
        let arguments = json::member(&params, "arguments").unwrap_or_default();
        let value = |mirror: &MirroredArgument| {
            mirror.path.iter().try_fold(arguments.clone(), |at, key| json::member(&at, key))
        };
        mirrors.iter().map(|mirror| (mirror, value(mirror))).collect()
    }
}

/// Returns the range of the list in the result of `tools/list`.
fn list_in(result: &Bytes) -> Option<Range<usize>> {
    // The last of several equal members is used, as by the parsers of JavaScript and Python.
    let list = Members::new(result).filter(|m| json::key_is(&result[m.key.clone()], "tools"));
    Some(list.last()?.value)
}

/// Returns an argument as the text of a header; `None` if the header is left out.
fn header_text(value: &Bytes) -> Option<String> {
    match value.first()? {
        b'"' => Some(json::decode_str(value)?.into_owned()),
        b't' | b'f' => Some(std::str::from_utf8(value).ok()?.to_owned()),
        _ => match Key::read(value)? {
            Key::Text(_) => None,
            number => Some(number.to_string()),
        },
    }
}

/// Finds the annotations in a schema. `path`: the keys that lead to the schema; `None` if object keys alone do not lead
/// to it.
fn mirrors(
    schema: &Value,
    path: &mut Option<Vec<String>>,
    found: &mut Vec<MirroredArgument>,
) -> Result<(), &'static str> {
    let Value::Object(members) = schema else {
        if let Value::Array(several) = schema {
            // Object keys alone do not lead to an element of an array, so no header can repeat it.
            several.iter().try_for_each(|one| mirrors(one, &mut None, found))?;
        }
        return Ok(());
    };
    if let Some(annotation) = members.get(ANNOTATION) {
        let path = path.clone().filter(|path| !path.is_empty());
        let path = path.ok_or("not every call has one place for the parameter")?;
        let header = header(annotation, members)?;
        if found.iter().any(|known| known.header == header) {
            return Err("two parameters have the same header");
        }
        if found.len() >= MIRRORS_MAX {
            return Err("there are too many headers");
        }
        found.push(MirroredArgument { header, path });
    }
    for (key, value) in members {
        match (&**key, value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    if let Some(path) = path {
                        path.push(name.clone());
                    }
                    mirrors(property, path, found)?;
                    if let Some(path) = path {
                        path.pop();
                    }
                }
            }
            // These members contain values and not schemas, even if a value contains the key of an annotation.
            ("default" | "const" | "enum" | "examples", _) => {}
            _ => mirrors(value, &mut None, found)?,
        }
    }
    Ok(())
}

fn header(annotation: &Value, parameter: &Map<String, Value>) -> Result<HeaderName, &'static str> {
    let primitive = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    let fits = match parameter.get("type") {
        Some(Value::Array(kinds)) => {
            let null = |kind: &Value| kind.as_str() == Some("null");
            kinds.iter().any(primitive) && kinds.iter().all(|kind| primitive(kind) || null(kind))
        }
        kind => kind.is_some_and(primitive),
    };
    if !fits {
        return Err("the parameter is no string, integer or boolean");
    }
    let name = annotation.as_str().filter(|name| !name.is_empty());
    let name = name.ok_or("the header has no name")?;
    HeaderName::try_from(format!("mcp-param-{name}")).map_err(|_| "the name is no name of a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(tools: &str) -> Bytes {
        Bytes::from(format!(r#"{{"a":1,"tools":[{tools}],"nextCursor":"x"}}"#))
    }

    fn tool(name: &str, schema: &str) -> String {
        format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#)
    }

    #[track_caller]
    fn check(schema: &str, arguments: &str, headers: &[(&str, &str)]) {
        let mut params = ToolHeaders::default();
        assert_eq!(params.learn(&list(&tool("t", schema))), None, "{schema}");
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
        );
        let said = params.headers(&Message::parse(call.into()));
        let said: Vec<(&str, &str)> =
            said.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(said, headers);
    }

    #[track_caller]
    fn check_refused(schema: &str) {
        let (good, bad) = (tool("good", "{}"), tool("bad", schema));
        let left = ToolHeaders::default().learn(&list(&format!("{good}, {bad} ,{good}")));
        assert_eq!(left, Some(list(&format!("{good},{good}"))), "{schema}");
    }

    #[test]
    fn annotated_arguments_are_repeated() {
        let schema = r#"{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "on":{"type":"boolean","x-mcp-header":"On"},
            "in":{"type":"object","properties":{"n":{"type":["integer","null"],"x-mcp-header":"N"}}},
            "q":{"type":"string"}}}"#;
        check(
            schema,
            r#"{"region":"us-west1","on":true,"in":{"n":-7},"q":"x"}"#,
            &[("mcp-param-n", "-7"), ("mcp-param-on", "true"), ("mcp-param-region", "us-west1")],
        );
        check(schema, r#"{"region":null,"in":{}}"#, &[]);
        check(
            schema,
            r#"{"region":"\u4e16","in":{"n":42.0}}"#,
            &[("mcp-param-n", "42"), ("mcp-param-region", "=?base64?5LiW?=")],
        );
        check(r#"{"type":"object","default":{"x-mcp-header":"A"}}"#, "{}", &[]);
        check(
            r#"{"properties":{"x-mcp-header":{"type":"string"}}}"#,
            r#"{"x-mcp-header":"a"}"#,
            &[],
        );
    }

    #[test]
    fn headers_say_what_their_arguments_say() {
        let schema = r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},
            "n":{"type":"integer","x-mcp-header":"N"},"on":{"type":"boolean","x-mcp-header":"On"}}}"#;
        let mut tools = ToolHeaders::default();
        tools.note(&list(&tool("t", schema)));
        let fits = |arguments: &str, headers: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().unwrap());
            }
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#
            );
            tools.check(&map, &Message::parse(call.into())).is_ok()
        };
        let (region, n, on) = ("mcp-param-region", "mcp-param-n", "mcp-param-on");
        assert!(fits("{}", &[]));
        assert!(fits("{}", &[("mcp-param-other", "x"), ("mcp-param-other", "y")]));
        assert!(fits(
            r#"{"region":"a","n":42,"on":true}"#,
            &[(region, "a"), (n, "42"), (on, "true")]
        ));
        assert!(fits(r#"{"region":"Hello"}"#, &[(region, "=?base64?SGVsbG8=?=")]));
        assert!(fits(r#"{"region":"=?base64?SGVs"}"#, &[(region, "=?base64?SGVs")]));
        assert!(fits(r#"{"n":42.0}"#, &[(n, "42")]) && fits(r#"{"n":42}"#, &[(n, "42.0")]));
        assert!(fits(r#"{"region":null}"#, &[]));
        assert!(!fits(r#"{"region":"a"}"#, &[]));
        assert!(!fits("{}", &[(region, "a")]));
        assert!(!fits(r#"{"region":{}}"#, &[(region, "a")]));
        assert!(!fits(r#"{"region":"a"}"#, &[(region, "b")]));
        assert!(!fits(r#"{"region":"a"}"#, &[(region, "a"), (region, "a")]));
        assert!(!fits(r#"{"region":"Hello"}"#, &[(region, "=?base64?SGVsbG8?=")]));
        assert!(!fits(r#"{"region":"42"}"#, &[(region, "42.0")]));
        tools.clear();
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":1}}}"#;
        assert!(tools.check(&HeaderMap::new(), &Message::parse(call.into())).is_ok());
    }

    #[test]
    fn a_tool_whose_annotations_are_wrong_is_left_out() {
        let one = |parameter: &str| format!(r#"{{"properties":{{"a":{parameter}}}}}"#);
        check_refused(&one(r#"{"type":"string","x-mcp-header":""}"#));
        check_refused(&one(r#"{"type":"string","x-mcp-header":"a b"}"#));
        check_refused(&one(r#"{"type":"string","x-mcp-header":"a\r\nb"}"#));
        check_refused(&one(r#"{"type":"string","x-mcp-header":1}"#));
        check_refused(&one(r#"{"type":"number","x-mcp-header":"A"}"#));
        check_refused(&one(r#"{"type":"object","x-mcp-header":"A"}"#));
        check_refused(&one(r#"{"x-mcp-header":"A"}"#));
        check_refused(&one(r#"{"type":"array","items":{"type":"string","x-mcp-header":"A"}}"#));
        check_refused(r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#);
        check_refused(
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
        );
    }
}
