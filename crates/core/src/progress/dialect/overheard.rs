//! Notifications with other methods that tell how a tool is getting on. A client may be written for these methods, so
//! the notifications are forwarded unchanged and are also shown as progress.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"notifications/tool/streamContent","params":{"toolName":"scan","content":[{"type":"text","text":"m"}]}}
//! {"jsonrpc":"2.0","method":"notifications/tool/streamContent","params":{"toolName":"scan","sessionId":"s","events":[{"type":"progress","message":"m","percentage":40}]}}
//! {"jsonrpc":"2.0","method":"notifications/tools/partial_result","params":{"requestId":7,"content":[{"type":"text","text":"m"}]}}
//! {"jsonrpc":"2.0","method":"$/progress","params":{"token":"op_1","value":{"kind":"report","message":"m","percentage":40}}}
//! {"jsonrpc":"2.0","method":"notifications/tools/output","params":{"toolName":"sh","output":{"type":"text","text":"m"}}}
//! ```
//! Seen in: FastMCP for TypeScript (first), agents built on it (second), a proposal that was closed and frameworks that
//! implement it (third), and the servers of the dialects `lsp`, `text-chunk` and `tasks-progress`. If a route names one
//! of these dialects, that dialect claims its methods instead.

use crate::progress::dialect::report::{BuiltIn, Original, Report};
use crate::progress::dialect::{Fields, meaning};
use crate::progress::verdict::Repair;
use crate::protocol::jsonrpc::Message;

pub(super) static DIALECT: BuiltIn = BuiltIn {
    name: "overheard",
    methods: &[
        "notifications/tool/streamContent",
        "notifications/tools/streamContent",
        "notifications/tools/partial_result",
        "notifications/tools/partialResult",
        "notifications/tool/partial_result",
        "notifications/partial_result",
        "notifications/partialResult",
        "notifications/partial_output",
        "notifications/tool/output",
        "notifications/tool/stream",
        "notifications/tool/chunk",
        "notifications/tools/chunk",
        "notifications/tools/status",
        "notifications/tool/status",
        "notifications/tools/call/stream",
        "notifications/tools/call/progress",
        "notifications/tools/stream",
        "notifications/tools/output",
        "notifications/tool_progress",
        "$/progress",
        "notifications/tasks/progress",
    ],
    default: true,
    original: Original::Passes,
    bare_results: false,
    read,
};

fn read(method: &str, _: &Message, params: &Fields) -> Option<Report> {
    let mut report = meaning::read(params);
    if method == "notifications/tasks/progress" {
        report.about.task = Some(params.key(&["taskId"])?);
    }
    report.repairs.add(Repair::Dialect);
    Some(report).filter(|report| report.message.is_some() || report.figure.is_some())
}
