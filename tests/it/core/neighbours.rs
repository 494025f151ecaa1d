//! Public servers and frameworks with their own forms of progress: the second table of `docs/legacy-systems.md`. Each
//! row plays the messages of such a server during a call, and counts the progress that its client shows.

use std::path::Path;
use std::time::Duration;

use milepost::config::routes::{Environment, Routes};
use milepost::progress::Policy;
use milepost::progress::dialect;
use serde_json::Value;

use crate::core::rig::{Rig, bare};

struct Neighbour {
    /// The project, and the file or thread with the shape.
    source: &'static str,
    says: &'static str,
    /// A preset (`preset codex`), a dialect besides the defaults (`log`), or nothing.
    setting: &'static str,
    /// Lines on the wire; those that begin with `2 ` are on standard error.
    lines: &'static [&'static str],
}

const fn row(
    source: &'static str,
    says: &'static str,
    setting: &'static str,
    lines: &'static [&'static str],
) -> Neighbour {
    Neighbour { source, says, setting, lines }
}

/// The client calls the tool `work` with the id 7 and the token `"t"`.
const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":"t"}}}"#;

static NEIGHBOURS: &[Neighbour] = &[
    row(
        "[fastmcp](https://github.com/punkpeye/fastmcp/issues/198) for TypeScript, `src/FastMCP.ts`",
        "`notifications/tool/streamContent` with content blocks, by tool",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/tool/streamContent","params":{"toolName":"work","content":[{"type":"text","text":"first page"}]}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/tool/streamContent","params":{"toolName":"work","content":[{"type":"text","text":"second page"}]}}"#,
        ],
    ),
    row(
        "agents on fastmcp, [what they send](https://github.com/punkpeye/fastmcp/issues/198)",
        "the same method with `events` or one `event`, words and percentages inside",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/tool/streamContent","params":{"toolName":"work","sessionId":"s","events":[{"type":"tool-call","toolName":"x"},{"type":"progress","message":"planning","percentage":20}]}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/tool/streamContent","params":{"toolName":"work","sessionId":"s","event":{"type":"progress","message":"writing","percentage":60}}}"#,
        ],
    ),
    row(
        "[codex](https://github.com/openai/codex/issues/4223) as a server, `codex-rs/mcp-server/src/outgoing_message.rs`",
        "`codex/event` with the request's id in `_meta`",
        "preset codex",
        &[
            r#"{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":7},"id":"0","msg":{"type":"task_started"}}}"#,
            r#"{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":7},"id":"0","msg":{"type":"exec_command_begin","command":["cargo","test"]}}}"#,
            r#"{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":7},"id":"0","msg":{"type":"agent_message","message":"The tests pass."}}}"#,
        ],
    ),
    row(
        "[buildkite-mcp-server](https://github.com/buildkite/buildkite-mcp-server/pull/215) before February 2026, `pkg/buildkite/builds.go`",
        "`notifications/progress` with members of its own, no token and no `progress`",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"build_number":4,"status":"scheduled","total_job_count":8,"remaining_job_count":8,"percentage_complete":0}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"build_number":4,"status":"running","total_job_count":8,"remaining_job_count":2,"percentage_complete":75}}"#,
        ],
    ),
    row(
        "[Forestrat MCP](https://github.com/Forestrat-Inc/duckdb-notebooks), `forestrat-mcp/CLIENT_STREAMING_GUIDE.md`",
        "`value` with kind, message and percentage, as in LSP; the request's id as token",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"7","value":{"kind":"report","message":"loading bars","percentage":45,"step":3,"tool":"work","data":{}}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"7","value":{"kind":"end","message":"done","percentage":100,"step":4,"tool":"work"}}}"#,
        ],
    ),
    row(
        "[twenty](https://github.com/twentyhq/twenty/issues/24559) before August 2026, `mcp-tool-executor.service.ts`",
        "a token made of `tool-call-` and the request's id",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tool-call-7","progress":0,"total":1}}"#,
        ],
    ),
    row(
        "[auto-mobile](https://github.com/kaeawc/auto-mobile/issues/6118) before September 2026, `src/server/index.ts`",
        "a token made of the tool and the time",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"work-1757000000000","progress":1,"total":4,"message":"step 1"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"work-1757000000000","progress":3,"total":4,"message":"step 3"}}"#,
        ],
    ),
    row(
        "[Genexus18MCP](https://github.com/lennix1337/Genexus18MCP/issues/44)",
        "tokens of the server's own",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":10,"message":"Build phase: OpeningKB","progressToken":"7724730363a945f8"}}"#,
        ],
    ),
    row(
        "[codex-control-mcp](https://github.com/littlebearapps/codex-control-mcp), `docs/MCP-PROGRESS-NOTIFICATIONS-IMPLEMENTATION-PLAN.md`",
        "the id of a task as token",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"T-local-abc123","progress":4,"total":6,"message":"editing"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"T-local-abc123","progress":6,"total":6,"message":"Codex SDK execution complete"}}"#,
        ],
    ),
    row(
        "[demesne](https://github.com/jbeshir/demesne), `internal/sandbox/childserver.go`",
        "one token for all calls, the value 0 again and again",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"keepalive","progress":0,"message":"the child runs"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"keepalive","progress":0,"message":"the child runs"}}"#,
        ],
    ),
    row(
        "[gradio](https://github.com/gradio-app/gradio) (`gradio[mcp]`), `gradio/mcp.py`",
        "counters without a total, words that say \"Step 2 of 4\"",
        "preset gradio",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0,"message":"Step 1 of 4"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1,"message":"Step 2 of 4"}}"#,
        ],
    ),
    row(
        "[omegon-extension-rs](https://github.com/styrene-lab/omegon-extension-rs), `src/streaming.rs`",
        "`notifications/tools/progress` with `progress_token`, `phase` and content blocks",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"progress_token":"t","progress":30,"total":100,"phase":"scanning"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"progress_token":"t","progress":60,"total":0,"phase":"linking","content":[{"type":"text","text":"two files"}]}}"#,
        ],
    ),
    row(
        "[brokencrystals](https://github.com/NeuraLegion/brokencrystals/pull/899), `src/mcp/mcp.controller.ts`",
        "`notifications/progress` by tool and `notifications/partial_output` (in events named `notification`)",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"tool":"work","command":"uname -a","status":"starting","startedAt":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/partial_output","params":{"tool":"work","command":"uname -a","stream":"stdout","text":"Linux","elapsedMs":5}}"#,
        ],
    ),
    row(
        "[whisper-agent](https://github.com/computer-whisperer/whisper-agent), `crates/whisper-agent-mcp-host/src/server.rs`",
        "`notifications/tools/output` with one content block",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/tools/output","params":{"content":{"type":"text","text":"compiling a"}}}"#,
        ],
    ),
    row(
        "[a proposal](https://github.com/modelcontextprotocol/modelcontextprotocol/issues/117) that servers have taken up",
        "`notifications/tools/progress` by the request's id, partial results in `progress`",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{"name":"work","id":7,"progress":[{"type":"text","text":"row 1"}]}}"#,
        ],
    ),
    row(
        "[SEP-2632](https://github.com/modelcontextprotocol/modelcontextprotocol/pull/2632)",
        "words in content blocks of `notifications/progress`",
        "",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1,"total":3,"content":[{"type":"text","text":"asking the second agent"}]}}"#,
        ],
    ),
    row(
        "[tableau-mcp](https://github.com/tableau/tableau-mcp/issues/108) before October 2025, `src/logging/log.ts`",
        "logs with `message` in place of `data`",
        "log",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"rest-api","message":"{\"timestamp\":\"2025-09-16T10:03:52Z\",\"message\":\"reading the workbook\"}"}}"#,
        ],
    ),
    row(
        "[mcp-searxng](https://github.com/ihor-sokoliuk/mcp-searxng/pull/29), `src/logging.ts`",
        "logs with `message` beside `data`; later both in `data`",
        "log",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","message":"searching","data":{"engine":"a"}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"message":"reading","engine":"a"}}}"#,
        ],
    ),
    row(
        "[muse](https://github.com/ellistarn/muse) before it reported progress, `internal/mcp/server.go`",
        "logs with what the model thinks",
        "log",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"muse","data":"I look for earlier notes"}}"#,
        ],
    ),
    row(
        "[git-courer](https://github.com/Alejandro-M-P/git-courer)",
        "a log every few seconds of a slow operation",
        "log",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"git-courer","data":"Processing the commit"}}"#,
        ],
    ),
    row(
        "[mcp-for-beginners](https://github.com/microsoft/mcp-for-beginners/pull/111), `03-GettingStarted/06-http-streaming`, and servers that follow it",
        "logs that count",
        "log",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"Processing file 1/3..."}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"Processing file 3/3..."}}"#,
        ],
    ),
    row(
        "[d365fo-mcp-server](https://github.com/dynamics365ninja/d365fo-mcp-server/pull/351)",
        "one value at the start, the rest in logs",
        "log",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0,"total":1,"message":"searching"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"found 12 classes"}}"#,
        ],
    ),
    row(
        "[server-everything](https://github.com/modelcontextprotocol/servers/issues/1810) of May 2025",
        "`notifications/stderr`",
        "log",
        &[
            r#"{"jsonrpc":"2.0","method":"notifications/stderr","params":{"content":"10:00:00: a message of the server"}}"#,
        ],
    ),
    row(
        "[bridges to language servers](https://github.com/open-webui/mcpo/issues/184)",
        "`window/logMessage` and `$/progress` of LSP",
        "log",
        &[
            r#"{"jsonrpc":"2.0","method":"window/logMessage","params":{"type":3,"message":"Starting server v0.0.46"}}"#,
            r#"{"jsonrpc":"2.0","method":"$/progress","params":{"token":"index","value":{"kind":"report","message":"indexing","percentage":40}}}"#,
        ],
    ),
    row(
        "[codebase-memory-mcp](https://github.com/DeusData/codebase-memory-mcp/pull/108), `src/cli/progress_sink.c`",
        "counts on standard error",
        "stderr",
        &["2   Extracting: 3200/6402 files (49%)", "2   Extracting: 6300/6402 files (98%)"],
    ),
    row(
        "[esp-idf](https://github.com/espressif/esp-idf/issues/19087) (`idf.py mcp-server`), `tools/idf.py`",
        "text on standard output",
        "stdout",
        &["Executing action: build"],
    ),
];

/// Returns the settings of a row, with pacing, heartbeats and thinning off.
fn policy(setting: &str) -> Policy {
    let preset = setting.strip_prefix("preset ").map(|preset| format!("preset = {preset:?}\n"));
    let head = "[[route]]\npath = \"/a\"\nupstream.command = [\"x\"]\n";
    let text = head.to_owned() + &preset.unwrap_or_default();
    let routes = Routes::parse(Path::new(""), &text, &Environment::default()).unwrap();
    let mut policy = bare(routes.policy(routes.find(None).unwrap()));
    policy.call.min_interval = Duration::ZERO;
    policy.call.dialects.extend(dialect::named(setting));
    policy
}

/// `progress/total "message"` of each message that a strict client takes as progress of its call.
fn shown<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let read = |line: &str| -> Option<String> {
        let message: Value = serde_json::from_str(line).ok()?;
        let params = &message["params"];
        let is_ours =
            message["method"] == "notifications/progress" && params["progressToken"] == "t";
        let total = params["total"].as_f64().map(|_| format!("/{}", params["total"]));
        let words = params["message"].as_str().unwrap_or_default();
        (is_ours && params["progress"].is_number())
            .then(|| format!("`{}{}` {words:?}", params["progress"], total.unwrap_or_default()))
    };
    lines.filter_map(read).collect()
}

fn cell(shown: &[String]) -> String {
    match shown {
        [] => "nothing".to_owned(),
        [only] => format!("1: {only}"),
        [first, .., last] => format!("{}: {first} … {last}", shown.len()),
    }
}

fn play(row: &Neighbour) -> Vec<String> {
    let mut rig = Rig::new(policy(row.setting));
    rig.client(CALL.as_bytes());
    for line in row.lines {
        rig.pass(Duration::from_secs(2));
        match line.strip_prefix("2 ") {
            Some(line) => rig.errors(line),
            None => rig.server(line.as_bytes()),
        }
        rig.pass(Duration::from_secs(2));
    }
    rig.server(br#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#);
    let told: Vec<String> = rig
        .told
        .iter()
        .map(|told| String::from_utf8(told.payload.to_bytes().to_vec()).unwrap())
        .collect();
    // Messages that only some clients can use reach the client too.
    let is_claimed = |line: &str| {
        ["notifications/progress", "tools/progress"].iter().any(|method| line.contains(method))
    };
    for line in row.lines.iter().filter(|line| line.starts_with('{') && !is_claimed(line)) {
        assert!(told.iter().any(|told| told == line), "{line} is not forwarded");
    }
    shown(told.iter().map(String::as_str))
}

const HEAD: &str = "## Their neighbours

This table lists other public servers and frameworks whose progress differs from the specification, each with its source.
A test sends what such a server sends during a call of its tool, and writes what a strict client shows without Milepost
and with it. The column *setting* has what you have to set: nothing (*defaults*), a dialect in addition to the defaults
(`--dialect defaults,log`), or a preset.

| server | what it sends | without Milepost | with Milepost | setting |
|---|---|---|---|---|
";

/// The table, for the page that `legacy_systems` writes.
pub(crate) fn section() -> String {
    let mut section = HEAD.to_owned();
    for row in NEIGHBOURS {
        let without = cell(&shown(row.lines.iter().copied()));
        let with = cell(&play(row));
        let setting = match (row.setting, row.setting.strip_prefix("preset ")) {
            ("", _) => "defaults".to_owned(),
            (_, Some(preset)) => format!("preset `{preset}`"),
            (dialect, None) => format!("`{dialect}`"),
        };
        section += &format!("| {} | {} | {without} | {with} | {setting} |\n", row.source, row.says);
    }
    section
}

#[test]
fn every_neighbour_is_shown_as_the_table_says() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/legacy-systems.md");
    let kept = std::fs::read_to_string(&place).unwrap();
    let page = kept.split("\n## Their neighbours").next().unwrap();
    let section = section();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        return std::fs::write(&place, format!("{}\n\n{section}", page.trim_end())).unwrap();
    }
    assert!(kept.ends_with(&section), "UPDATE_EXPECT=1 writes it anew:\n{section}");
    assert!(!section.contains("| nothing | nothing |"), "{section}");
}
