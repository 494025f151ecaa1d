//! KuzuMem-MCP, a memory bank on a graph database, in five of its generations.
//!
//! It streamed what its tools were doing long before it agreed with the specification on how. Each
//! generation talks stdio and tells of the same work in its own way:
//!
//! * `k1` (May 2025, hand-written): a method of its own, the request's id for a token, and the
//!   figures inside pretty-printed JSON inside a text. The `isFinal` one repeats the whole result.
//!   ```json
//!   {"jsonrpc":"2.0","method":"tools/progress","params":{"id":7,"content":[{"type":"text","text":"{\n  \"status\": \"in_progress\",\n  \"percentComplete\": 15\n}"}],"isFinal":false}}
//!   ```
//!   It answers `notifications/initialized`, knows no `ping`, and logs to stdout.
//! * `k3s` (the release of that month): as before, with compact JSON in a `RichText`, much more
//!   noise, `"5"` for the id 5 (in answers too), and results and errors bare of what MCP wraps
//!   around them.
//! * `k4` (late May 2025, on the official SDK): the standard method without `progress`, the
//!   request's id for a token whatever the client gave, and objects dumped to stdout over several
//!   lines.
//!   ```json
//!   {"method":"notifications/progress","params":{"progressToken":5,"message":"Starting...","data":{"status":"initializing","toolName":"pagerank"}},"jsonrpc":"2.0"}
//!   ```
//! * `k6` (June 2025): `tools/progress` again, always about the id `"unknown"`, which is answered
//!   too, before the true answer.
//! * `head` (2026): silent on the wire. Progress goes to stderr in pino's JSON, with percents that
//!   fall: 10, 20, 40, 20, 40, 70, 100, 80, 100.
//!
//! `pagerank` takes a second; a component whose id begins with `no-such` makes
//! `get-component-dependencies` fail.
//!
//! Run it with `cargo run --example kuzumem -- --generation k1`, and behind milepost with
//! `milepost wrap -- target/debug/examples/kuzumem --generation k1`.

#[path = "support/graph.rs"]
mod graph;
mod support;

use std::process;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::{Parser, ValueEnum};
use graph::{Work, dependencies, pagerank, success};
use serde_json::{Value, json};
use support::{Call, Cancelled, Fields, Server, Tool};

/// One generation of KuzuMem-MCP.
#[derive(Parser)]
struct KuzuMem {
    /// Which generation to be
    #[arg(long, value_enum, default_value_t = Generation::K1)]
    generation: Generation,
    /// Time between the steps of a tool [default: 50ms for pagerank, 5ms else]
    #[arg(long, value_name = "DURATION", value_parser = support::duration)]
    pace: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Generation {
    K1,
    K3s,
    K4,
    K6,
    Head,
}
use Generation::{Head, K1, K3s, K4, K6};

const REPOSITORY: (&str, &str, &str) = ("repository", "string", "The repository's name");
const BRANCH: (&str, &str, &str) = ("branch", "string", "The repository's branch");

const TOOLS: [Tool; 4] = [
    Tool {
        name: "pagerank",
        description: "Ranks the components of a repository, in 20 iterations",
        arguments: &[REPOSITORY, BRANCH],
    },
    Tool {
        name: "get-component-dependencies",
        description: "Follows the dependencies of a component",
        arguments: &[REPOSITORY, BRANCH, ("componentId", "string", "The component")],
    },
    Tool {
        name: "init-memory-bank",
        description: "Prepares a memory bank for a repository",
        arguments: &[REPOSITORY, BRANCH],
    },
    Tool {
        name: "memory-bank",
        description: "Prepares a memory bank for a repository",
        arguments: &[REPOSITORY, BRANCH],
    },
];

impl Server for KuzuMem {
    fn identity(&self) -> (&'static str, &'static str) {
        ("memory-bank-mcp", if self.by_hand() { "1.0.0" } else { "2.0.0" })
    }

    fn tools(&self) -> &'static [Tool] {
        if self.generation == Head { &TOOLS } else { &TOOLS[..3] }
    }

    fn protocol_version(&self, asked: Option<&str>) -> String {
        let version = match asked {
            asked if self.by_hand() => asked.unwrap_or("0.1"),
            Some("2024-11-05") => "2024-11-05",
            _ => "2025-03-26",
        };
        version.to_owned()
    }

    fn capabilities(&self) -> &'static str {
        if self.by_hand() {
            r#"{"memory":{"list":true},"tools":{"list":true,"call":true}}"#
        } else {
            r#"{"tools":{}}"#
        }
    }

    fn initialized(&self) {
        if self.by_hand() {
            support::say(r#"{"jsonrpc":"2.0","result":{}}"#);
        }
    }

    fn garbled(&self) {
        if self.by_hand() {
            support::refuse(&Value::Null, -32700, "Parse error");
        }
    }

    fn answers_ping(&self) -> bool {
        !self.by_hand()
    }

    /// No generation knows of cancelling.
    fn call(&self, call: &Call) -> Result<(), Cancelled> {
        match call.tool.as_str() {
            _ if !self.tools().iter().any(|tool| tool.name == call.tool) => self.unknown(call),
            _ if self.generation == Head => self.log_progress(call),
            "pagerank" => self.stream(call, pagerank(call)),
            "get-component-dependencies" => self.stream(call, dependencies(call)),
            _ => {
                thread::sleep(self.pace.unwrap_or_default());
                self.answer(call, &support::text_result(&support::pretty(&success(call)), false));
            }
        }
        Ok(())
    }
}

impl KuzuMem {
    /// Whether the protocol is hand-written and not left to the official SDK.
    fn by_hand(&self) -> bool {
        matches!(self.generation, K1 | K3s)
    }

    fn stream(&self, call: &Call, work: Work) {
        let pace = self.pace.unwrap_or(work.pace);
        for (at, step) in work.steps.iter().enumerate() {
            if at > 0 && step[0].1 == "in_progress" {
                thread::sleep(pace);
            }
            self.progress(call, step, false);
            self.chatter(call, step, at);
        }
        match work.outcome {
            Ok(result) => {
                self.progress(call, &result, true);
                self.finish(call, &result);
            }
            Err(error) => self.fail(call, &error),
        }
    }

    /// Tells of a step the way the generation does.
    fn progress(&self, call: &Call, step: &Fields, last: bool) {
        let Call { id, tool, .. } = call;
        let (id, kind, text) = match self.generation {
            K1 => (id.to_string(), "text", support::pretty(step)),
            K3s => (stringified(id), "RichText", support::compact(&marked(step, last))),
            K6 => (r#""unknown""#.to_owned(), "RichText", support::compact(&marked(step, last))),
            K4 => return standard(id, tool, step, last),
            Head => return,
        };
        let text = support::quoted(&text);
        support::say(format_args!(
            r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":{id},"content":[{{"type":"{kind}","text":{text}}}],"isFinal":{last}}}}}"#
        ));
    }

    /// What `console.log` adds to the wire.
    fn chatter(&self, call: &Call, step: &Fields, at: usize) {
        let (tool, status) = (&call.tool, &step[0].1.as_str().unwrap_or_default());
        match self.generation {
            K1 if at == 0 => {
                support::say("KuzuDBClient: Executing query (no parameters)");
            }
            K3s => support::say_raw(&format!(
                "KuzuDBClient: Executing query for {tool}\n[SimpleEchoOperation] {tool}: {status}\n"
            )),
            K4 => support::say_raw(&format!(
                "[Tool: {tool}] Sending Progress: {{\n  status: '{status}',\n  toolName: '{tool}',\n  data: [Object]\n}}\n{{\n  iteration: {at},\n  done: false\n}}\n"
            )),
            _ => {}
        }
    }

    fn finish(&self, call: &Call, result: &Fields) {
        match self.generation {
            K3s => self.answer(call, &support::compact(result)),
            K4 => self.answer(call, &support::text_result(&support::compact(result), false)),
            K6 => {
                support::answer(&json!("unknown"), support::compact(result));
                self.answer(call, &support::text_result(&support::pretty(result), false));
            }
            K1 | Head => self.answer(call, &support::text_result(&support::pretty(result), false)),
        }
    }

    fn fail(&self, call: &Call, error: &str) {
        let message = if self.generation == K4 { "message" } else { "error" };
        let failure = vec![(message, json!(error)), ("status", json!("error"))];
        self.progress(call, &failure, true);
        match self.generation {
            K3s => self.refuse(&stringified(&call.id), error),
            K4 => self.finish(call, &failure),
            generation => {
                if generation == K6 {
                    self.refuse(r#""unknown""#, error);
                }
                let text = support::pretty(&[("error", json!(error))]);
                self.answer(call, &support::text_result(&text, true));
            }
        }
    }

    fn unknown(&self, call: &Call) {
        let error = format!("Tool '{}' not found in definitions.", call.tool);
        if self.generation == K3s {
            self.fail(call, &error);
        } else {
            self.answer(call, &support::text_result(&error, true));
        }
    }

    /// An error with neither code nor message.
    fn refuse(&self, id: &str, error: &str) {
        let error = support::quoted(error);
        support::say(format_args!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"error":{error}}}}}"#));
    }

    fn answer(&self, call: &Call, result: &str) {
        let id = &call.id;
        match self.generation {
            K1 => support::answer(id, result),
            K3s => support::answer(&json!(id.as_str().unwrap_or(&id.to_string())), result),
            _ => {
                support::say(format_args!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#));
            }
        }
    }

    /// Progress as a log on stderr. The last one may be read after the answer on stdout.
    fn log_progress(&self, call: &Call) {
        const PERCENTS: [u32; 9] = [10, 20, 40, 20, 40, 70, 100, 80, 100];
        const MESSAGES: [&str; 9] = [
            "Initializing memory bank...",
            "Validating project root...",
            "Opening database...",
            "Checking repository...",
            "Creating repository...",
            "Creating metadata...",
            "Repository ready",
            "Verifying memory bank...",
            "Memory bank initialized",
        ];
        let request = support::uuid();
        for (at, (percent, message)) in PERCENTS.iter().zip(MESSAGES).enumerate() {
            thread::sleep(self.pace.unwrap_or(Duration::from_millis(5)));
            let last = at + 1 == PERCENTS.len();
            let status = if last { "complete" } else { "in_progress" };
            let data = vec![
                ("status", json!(status)),
                ("message", json!(message)),
                ("percent", json!(percent)),
            ];
            pino(&call.tool, &request, &support::compact(&marked(&data, last)));
        }
        self.finish(call, &success(call));
    }
}

/// The standard method, with everything but the figure it requires.
fn standard(id: &Value, tool: &str, step: &Fields, last: bool) {
    let mut message = String::new();
    let mut data = marked(step, last);
    if let Some(at) = data.iter().position(|(key, _)| *key == "message") {
        message = format!(r#""message":{},"#, data.remove(at).1);
    }
    if last && !data.contains(&("status", json!("error"))) {
        data = vec![("status", json!("complete")), ("isFinal", json!(true))];
    }
    data.push(("toolName", json!(tool)));
    let data = support::compact(&data);
    support::say(format_args!(
        r#"{{"method":"notifications/progress","params":{{"progressToken":{id},{message}"data":{data}}},"jsonrpc":"2.0"}}"#
    ));
}

fn pino(tool: &str, request: &str, data: &str) {
    let (pid, time) = (process::id(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
    let (time, tool) = (time.as_millis(), support::quoted(tool));
    eprintln!(
        r#"{{"level":"info","time":{time},"pid":{pid},"hostname":"localhost","component":"MCP-Stdio","tool":{tool},"requestId":"{request}","progressData":{data},"msg":"Progress notification (stdio no-op)"}}"#
    );
}

/// `String(id)`, as JSON.
fn stringified(id: &Value) -> String {
    if id.is_string() { id.to_string() } else { format!("\"{id}\"") }
}

/// The last step says so inside as well.
fn marked(step: &Fields, last: bool) -> Fields {
    let mut step = step.clone();
    if last {
        step.push(("isFinal", json!(true)));
    }
    step
}

fn main() {
    let server = KuzuMem::parse();
    if server.by_hand() {
        support::say("Using KuzuDB database at: /var/lib/kuzumem/memory-bank.kuzu");
        support::say("MCP_STDIO_SERVER_READY_FOR_TESTING");
    }
    if server.generation == K3s {
        support::say("KuzuDBClient: Initialized database and connection");
    }
    support::serve(server);
}
