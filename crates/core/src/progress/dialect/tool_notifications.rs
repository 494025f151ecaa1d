//! `notifications/tools/progress` and `notifications/tool/progress`: methods that many servers have invented, each
//! server with its own members.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"id":4,"text":"delta"}}
//! {"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"requestId":"req-1","chunk":"delta"}}
//! {"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"token":"t","data":{"token":"The"}}}
//! {"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"tool_name":"scan","progress":40,"message":"m"}}
//! {"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"toolName":"scan","progress":0.4,"message":"m"}}
//! {"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"tool":"fix","event":"started","data":{}}}
//! {"jsonrpc":"2.0","method":"notifications/tools/completed","params":{"tool_name":"scan","result_summary":"m"}}
//! {"jsonrpc":"2.0","method":"notifications/tool/progress","params":{"requestId":4,"toolName":"scan","progress":0.4,"message":"m","seq":3,"contentChunk":{"type":"text","text":"m"}}}
//! ```
//! Seen in: a TypeScript framework with `async function*` tools, desktop hosts, data viewers, servers in Rust and
//! tutorials copied from each other; with `tool_name` the value is a percentage, with `toolName` a fraction of 1.

use crate::progress::dialect::fields::{clean, whole};
use crate::progress::dialect::report::{About, BuiltIn, Original, Report};
use crate::progress::dialect::{Fields, meaning};
use crate::progress::value::ProgressValue;
use crate::progress::verdict::Repair;
use crate::protocol::jsonrpc::Message;

pub(super) static DIALECT: BuiltIn = BuiltIn {
    name: "tool-notifications",
    methods: &[
        "notifications/tools/progress",
        "notifications/tool/progress",
        "notifications/tools/completed",
    ],
    default: true,
    original: Original::Replaced,
    bare_results: false,
    read,
};

fn read(method: &str, _: &Message, params: &Fields) -> Option<Report> {
    let mut report = Report::default();
    report.repairs.add(Repair::Dialect);
    report.about = About {
        token_text: params.first(&["progressToken", "token"]).cloned(),
        token: params.key(&["progressToken", "token"]),
        request: params.key(&["id", "requestId"]),
        request_text: params.first(&["id", "requestId"]).cloned(),
        tool: params.text(&["tool_name", "toolName", "tool"]),
        task: None,
    };
    if method.ends_with("/completed") {
        report.last = true;
        report.message = clean("completed");
        return Some(report);
    }
    report.figure = figure(params).or_else(|| meaning::figure(params));
    if let Some(words) = params.text(&["text", "chunk"]).or_else(|| first_word(params)) {
        report.chunk = true;
        report.message = clean(&words);
    } else {
        let part = params.object("contentChunk").and_then(|part| part.text(&["text"]));
        let words =
            params.text(&["message"]).or(part).or_else(|| params.text(&["event", "status"]));
        let (words, chunk) =
            words.map_or_else(|| meaning::words(params), |words| (Some(words), false));
        report.message = words.and_then(|words| clean(&words));
        report.chunk = chunk;
    }
    Some(report)
}

fn figure(params: &Fields) -> Option<ProgressValue> {
    let Some(value) = params.progress_of_total() else { return params.figure() };
    let value = match (params.get_exact("tool_name"), params.get_exact("toolName")) {
        (Some(_), _) => value.or_of(whole("100")),
        (None, Some(_)) => value.or_of(whole("1")),
        (None, None) => value,
    };
    Some(value.within_total())
}

/// Returns the piece of text in `data: {"token": "The"}`.
fn first_word(params: &Fields) -> Option<String> {
    params.get("message").is_none().then(|| params.object("data"))?.and_then(|data| {
        let first = data.iter().next()?.0;
        data.text(&[&first])
    })
}
