//! `tools/progress`, which names its request by the id.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"tools/progress","params":{"id":7,"content":[{"type":"text","text":"{\"status\":\"in_progress\",\"message\":\"m\",\"percentComplete\":15}"}],"isFinal":false}}
//! {"jsonrpc":"2.0","method":"tools/progress","params":{"toolCallId":"call_1","update":{"type":"text_delta","delta":"m"}}}
//! {"jsonrpc":"2.0","method":"tools/progress","params":{"toolName":"play","progress":40,"message":"m"}}
//! ```
//! Seen in: KuzuMem-MCP before its move to the SDK (first form; the content type is `text` or
//! `RichText`, the id sometimes a string or the word `unknown`, `isFinal` repeats the whole result),
//! an agent host's extension protocol (second), a music player's server (third).

use bytes::Bytes;

use crate::progress::dialect::Fields;
use crate::progress::dialect::fields::{clean, number, whole};
use crate::progress::dialect::report::{About, BuiltIn, Report};
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repair;
use crate::protocol::json;
use crate::protocol::jsonrpc::{Key, Message};

pub(super) static DIALECT: BuiltIn = BuiltIn {
    name: "tools-progress",
    methods: &["tools/progress"],
    default: true,
    bare_results: true,
    read,
};

fn read(_: &str, _: &Message, params: &Fields) -> Option<Report> {
    let mut report = Report::default();
    report.repairs.add(Repair::Dialect);
    report.about = About {
        request: params.key(&["id"]),
        request_text: params.first(&["id"]).cloned(),
        token_text: params.first(&["toolCallId"]).cloned(),
        token: params.key(&["toolCallId"]),
        tool: params.text(&["toolName"]),
        task: None,
    };
    if let Some(update) = params.object("update") {
        report.message = update.text(&["delta", "text"]).and_then(|words| clean(&words));
        report.chunk = true;
        return Some(report);
    }
    if let Some(value) = params.get("progress").and_then(number) {
        report.figure = Some(ProgressValue { value, total: Some(whole("100")) });
        report.message = params.text(&["message"]).and_then(|words| clean(&words));
        return Some(report);
    }
    let text = text_of(params.get("content"));
    let payload = text.as_ref().and_then(Fields::read_embedded);
    let inside = payload.as_ref();
    report.last =
        params.is_true("isFinal") || inside.is_some_and(|payload| payload.is_true("isFinal"));
    report.figure = inside.and_then(Fields::figure);
    report.message = match inside {
        Some(payload) => payload_words(payload, report.last),
        None if report.last => None,
        None => {
            text.as_ref().and_then(|text| json::decode_str(text)).and_then(|words| clean(&words))
        }
    };
    Some(report)
}

/// The text of the first content block that has one.
fn text_of(content: Option<&Bytes>) -> Option<Bytes> {
    let content = content?;
    let (blocks, _) = json::elements(content)?;
    blocks.into_iter().find_map(|block| json::member(&content.slice(block), "text"))
}

/// The payload's message, or its status with a size. The payload of the last report is the whole
/// result: only its status is read.
fn payload_words(payload: &Fields, last: bool) -> Option<Bytes> {
    let status = payload.text(&["status"]);
    if last {
        return status.and_then(|status| clean(&status));
    }
    if let Some(message) = payload.text(&["message"]) {
        return clean(&message);
    }
    let status = status?;
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
