//! `tools/progress`, which names its request by the id.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"tools/progress","params":{"id":7,"content":[{"type":"text","text":"{\"status\":\"in_progress\",\"message\":\"m\",\"percentComplete\":15}"}],"isFinal":false}}
//! {"jsonrpc":"2.0","method":"tools/progress","params":{"toolCallId":"call_1","update":{"type":"text_delta","delta":"m"}}}
//! {"jsonrpc":"2.0","method":"tools/progress","params":{"toolName":"play","progress":40,"message":"m"}}
//! {"jsonrpc":"2.0","method":"tools/progress","params":{"requestId":7,"percent":40,"message":"m","isFinal":false}}
//! ```
//! Seen in: KuzuMem-MCP before its move to the SDK (first form; the content type is `text` or `RichText`, the id
//! sometimes a string or the word `unknown`, `isFinal` repeats the whole result), an agent host's extension protocol
//! (second), a music player's server (third). The last form has members that servers use for such reports under other
//! methods; it is read too.

use bytes::Bytes;

use crate::progress::dialect::fields::{clean, whole};
use crate::progress::dialect::report::{About, BuiltIn, Original, Report};
use crate::progress::dialect::{Fields, meaning};
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repair;
use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Message};

pub(super) static DIALECT: BuiltIn = BuiltIn {
    name: "tools-progress",
    methods: &["tools/progress"],
    default: true,
    original: Original::Replaced,
    bare_results: true,
    read,
};

/// The members that may name the request.
const REQUEST: &[&str] = &["id", "requestId", "request_id"];

/// The members that may contain the token.
const TOKEN: &[&str] = &["progressToken", "token", "toolCallId"];

fn read(_: &str, _: &Message, params: &Fields) -> Option<Report> {
    let mut report = Report::default();
    report.repairs.add(Repair::Dialect);
    report.about = About {
        request: params.key(REQUEST),
        request_text: params.first(REQUEST).cloned(),
        token_text: params.first(TOKEN).cloned(),
        token: params.key(TOKEN),
        tool: params.text(&["toolName", "tool_name", "tool"]),
        task: None,
    };
    if let Some(update) = params.object("update") {
        report.message = update.text(&["delta", "text"]).and_then(|words| clean(&words));
        report.chunk = true;
        return Some(report);
    }
    let Some(content) = params.get("content") else {
        report.last = params.is_true("isFinal");
        report.figure = figure(params).or_else(|| meaning::figure(params));
        let words = params.text(&["message", "text", "status"]);
        let words = words.or_else(|| meaning::words(params).0);
        report.message = words.and_then(|words| clean(&words));
        return Some(report);
    };
    let text = text_of(content);
    let payload = text.as_ref().and_then(Fields::read_embedded);
    let inside = payload.as_ref();
    report.last =
        params.is_true("isFinal") || inside.is_some_and(|payload| payload.is_true("isFinal"));
    report.figure = inside.and_then(Fields::figure).or_else(|| figure(params));
    report.message = match inside {
        // The payload of the last report is the whole result, so only its status is read.
        Some(payload) if report.last => payload.text(&["status"]).and_then(|status| clean(&status)),
        Some(payload) => payload_words(payload),
        None if report.last => None,
        None => {
            text.as_ref().and_then(|text| json::decode_str(text)).and_then(|words| clean(&words))
        }
    };
    Some(report)
}

/// Returns the value in the members of a report. `progress` is a percentage if no `total` is given.
fn figure(params: &Fields) -> Option<ProgressValue> {
    let value = params.progress_of_total().map(|value| value.or_of(whole("100")));
    value.or_else(|| params.figure())
}

/// Returns the text of the first content block that has a text, or of content that is a single block or a string.
fn text_of(content: &Bytes) -> Option<Bytes> {
    match content.first() {
        Some(b'"') => return Some(content.clone()),
        Some(b'{') => return json::member(content, "text"),
        _ => {}
    }
    let (blocks, _) = json::elements(content)?;
    blocks.into_iter().find_map(|block| json::member(&content.slice(block), "text"))
}

/// Returns the payload's message, or its status with a size.
fn payload_words(payload: &Fields) -> Option<Bytes> {
    if let Some(message) = payload.text(&["message"]) {
        return clean(&message);
    }
    let status = payload.text(&["status"])?;
    let size = payload.iter().find_map(|(key, value)| {
        if let Some((elements, _)) = json::elements(value) {
            return Some(format!("{} {key}", elements.len()));
        }
        let Some(Key::Integer(count)) = Key::read(value) else { return None };
        let name = if key == "count" { Some("") } else { key.strip_suffix("Count") };
        name.map(|name| format!("{count} {name}"))
    });
    clean(&size.map_or_else(|| status.clone(), |size| format!("{status}: {}", size.trim_end())))
}
