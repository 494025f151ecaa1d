//! `codex/event`: the events of Codex as a server (`codex mcp-server`), whose tool runs for minutes.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":2},"id":"0","msg":{"type":"agent_message","message":"m"}}}
//! {"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":2},"id":"0","msg":{"type":"agent_reasoning","text":"m"}}}
//! {"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":2},"id":"0","msg":{"type":"exec_command_begin","command":["cargo","test"]}}}
//! {"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":2},"id":"0","msg":{"type":"patch_apply_begin","changes":{"src/a.rs":{}}}}}
//! {"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":2},"id":"0","msg":{"type":"token_count"}}}
//! ```
//! Seen in: openai/codex, and servers of other agents with the same events (`deepseek/event`, `subagent/event`). Not on
//! by default, because an event comes for each token of the model. The events are also forwarded unchanged, for clients
//! that are written for them.

use crate::progress::dialect::Fields;
use crate::progress::dialect::fields::clean;
use crate::progress::dialect::meaning::text_of;
use crate::progress::dialect::report::{About, BuiltIn, Original, Report};
use crate::progress::one_line::one_line;
use crate::progress::verdict::Repair;
use crate::protocol::json;
use crate::protocol::jsonrpc::Message;

pub(super) static DIALECT: BuiltIn = BuiltIn {
    name: "codex",
    methods: &["codex/event", "deepseek/event", "subagent/event"],
    default: false,
    original: Original::Passes,
    bare_results: false,
    read,
};

/// Limit of the arguments of a command that are shown.
const ARGUMENTS_MAX: usize = 64;

/// Limit of the files of a patch that are named.
const FILES_MAX: usize = 8;

fn read(_: &str, _: &Message, params: &Fields) -> Option<Report> {
    let mut report = Report::default();
    report.repairs.add(Repair::Dialect);
    // `params.id` is the number of a turn, not the id of a request.
    let meta = params.object("_meta").unwrap_or_default();
    report.about = About {
        request: meta.key(&["requestId"]),
        request_text: meta.first(&["requestId"]).cloned(),
        ..About::default()
    };
    let msg = params.object("msg")?;
    let words = words(&msg);
    report.message = words.and_then(|words| clean(&one_line(&words, "")));
    Some(report)
}

/// Returns the text of an event. An event without a text only shows that the call is alive.
fn words(msg: &Fields) -> Option<String> {
    let kind = msg.text(&["type"])?;
    match &*kind {
        "agent_message" | "agent_reasoning" | "background_event" | "stream_error" | "warning"
        | "error" => msg.text(&["message", "text"]),
        "exec_command_begin" => {
            let command = msg.get("command")?;
            let Some((places, _)) = json::elements(command) else { return text_of(command, 0) };
            let parts = places.into_iter().take(ARGUMENTS_MAX);
            let parts = parts.filter_map(|place| text_of(&command.slice(place), 0));
            Some(parts.collect::<Vec<_>>().join(" "))
        }
        "patch_apply_begin" => {
            let changes = msg.object("changes")?;
            let files = changes.iter().take(FILES_MAX).map(|(file, _)| file.into_owned());
            Some(format!("changing {}", files.collect::<Vec<_>>().join(", ")))
        }
        "mcp_tool_call_begin" => {
            let invoked = msg.object("invocation")?;
            let parts = [invoked.text(&["server"]), invoked.text(&["tool"])];
            Some(parts.into_iter().flatten().collect::<Vec<_>>().join("."))
        }
        "web_search_begin" | "web_search_end" => msg.text(&["query"]),
        _ => None,
    }
}
