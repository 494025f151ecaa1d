//! Pieces of text that a tool streams during a call, under one of several invented methods.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"notifications/tools/call/stream","params":{"delta":{"text":"m"}}}
//! {"jsonrpc":"2.0","method":"notifications/tools/stream","params":{"toolName":"research","chunkType":"text-delta","text":"m"}}
//! {"jsonrpc":"2.0","method":"notifications/tools/output","params":{"toolName":"sh","output":{"type":"text","text":"m"}}}
//! {"jsonrpc":"2.0","method":"notifications/tool_progress","params":{"output":"m"}}
//! ```
//! Seen in: research agents, shell servers and tutorials. Not on by default, because some clients are written for these
//! methods.

use crate::progress::dialect::fields::clean;
use crate::progress::dialect::report::{About, BuiltIn, Original, Report};
use crate::progress::dialect::{Fields, meaning};
use crate::progress::verdict::Repair;
use crate::protocol::jsonrpc::Message;

pub(super) static DIALECT: BuiltIn = BuiltIn {
    name: "text-chunk",
    methods: &[
        "notifications/tools/call/stream",
        "notifications/tools/call/progress",
        "notifications/tools/stream",
        "notifications/tools/output",
        "notifications/tool_progress",
    ],
    default: false,
    original: Original::Replaced,
    bare_results: false,
    read,
};

fn read(_: &str, _: &Message, params: &Fields) -> Option<Report> {
    let mut report = Report { chunk: true, ..Report::default() };
    report.repairs.add(Repair::Dialect);
    report.about = About {
        token_text: params.first(&["progressToken"]).cloned(),
        token: params.key(&["progressToken"]),
        request: params.key(&["requestId", "id"]),
        request_text: params.first(&["requestId", "id"]).cloned(),
        tool: params.text(&["toolName", "tool_name", "tool"]),
        task: None,
    };
    let inner = ["delta", "content", "output"];
    let nested =
        || inner.iter().find_map(|name| params.object(name).and_then(|part| part.text(&["text"])));
    let words = params.text(&["chunk", "text", "delta", "output"]).or_else(nested);
    let words = words.or_else(|| meaning::words(params).0);
    report.message = words.and_then(|words| clean(&words));
    Some(report)
}
