//! KuzuMem-MCP, a memory bank on a graph database, in eight of its generations.
//!
//! The server streamed the work of its tools long before it agreed with the specification on how. Each
//! generation tells of the same work in its own way; over stdio:
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
//! And over HTTP:
//!
//! * `k2` (May 2025, hand-written): what `k1` says, as events of names that no client listens to, on a
//!   stream that is never closed. Results and errors are bare, and the id 0, which the server takes
//!   for none, is answered under one it makes up. `/mcp` knows no method but `tools/call`: clients
//!   `POST /initialize` and `GET /tools/list`. Without events in `Accept` the answer is plain JSON.
//!   ```text
//!   event: mcpNotification
//!   data: {"jsonrpc":"2.0","method":"tools/progress","params":{"id":7,"content":[{"type":"text","text":"{\n  \"status\": \"in_progress\",\n  \"percentComplete\": 15\n}"}],"isFinal":false}}
//!   ```
//! * `k3h` (the release of that month): as before, in a `RichText`, with ids, no space after colons,
//!   and an end.
//!   ```text
//!   retry:2000
//!
//!   event:mcpNotification
//!   id:6f1c…
//!   data:{"jsonrpc":"2.0","method":"tools/progress","params":{"id":7,"content":[{"type":"RichText","text":"{\"status\":\"in_progress\",\"percentComplete\":15}"}],"isFinal":false}}
//!   ```
//! * `k5` (June 2025, on the official SDK): the standard method without `progress`, with keys of its
//!   own beside the token, which is the request's id whatever the client gave; or, for the ids 0 and
//!   "", a new one each time. All clients share a session.
//!   ```text
//!   event: message
//!   data: {"method":"notifications/progress","params":{"progressToken":7,"status":"in_progress","message":"PageRank iteration 3/20 complete.","percent":15},"jsonrpc":"2.0"}
//!   ```
//!
//! `pagerank` takes a second; a component whose id begins with `no-such` makes
//! `get-component-dependencies` fail.
//!
//! Run it with `cargo run --example kuzumem -- --generation k1`, and behind milepost with
//! `milepost wrap -- target/debug/examples/kuzumem --generation k1`. Over HTTP:
//! `cargo run --example kuzumem -- --http 127.0.0.1:3001 --generation k5`. No client can begin with k2 and
//! k3h; a route with `upstream.lifecycle = { tools = "/tools/list", initialize = "/initialize" }` lets it.

#[path = "support/graph.rs"]
mod graph;
mod support;
#[path = "support/words.rs"]
mod words;

use std::process;
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use graph::{Work, dependencies, pagerank, success};
use serde_json::{Value, json};
use support::{Call, Cancelled, Client, Fields, Library, Listen, Said, Server, Tool};
use words::{marked, pino, spread, standard, stringified};

/// One generation of KuzuMem-MCP.
#[derive(Parser)]
struct KuzuMem {
    /// The generation of the server [default: k1 over stdio, k5 over HTTP]
    #[arg(long, visible_alias = "variant", value_enum)]
    generation: Option<Generation>,
    /// Time between the steps of a tool [default: 50ms for pagerank, 5ms else]
    #[arg(long, value_name = "DURATION", value_parser = support::duration)]
    pace: Option<Duration>,
    /// Take the first client of k5 for the only one, and refuse others
    #[arg(long, requires = "http")]
    once: bool,
    #[command(flatten)]
    listen: Listen,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Generation {
    K1,
    K2,
    K3s,
    K3h,
    K4,
    K5,
    K6,
    Head,
}
use Generation::{Head, K1, K2, K3h, K3s, K4, K5, K6};

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
        match self.generation() {
            K1 | K3s => ("memory-bank-mcp", "1.0.0"),
            K2 | K3h => ("KuzuMem-MCP", "1.0.0"),
            _ => ("memory-bank-mcp", "2.0.0"),
        }
    }

    fn listen(&self) -> Listen {
        self.listen
    }

    fn library(&self) -> Library {
        match self.generation() {
            K2 => Library::KuzuMem,
            K3h => Library::BetterSse,
            _ => Library::TypeScript { once: self.once },
        }
    }

    fn tools(&self) -> &'static [Tool] {
        if self.generation() == Head { &TOOLS } else { &TOOLS[..3] }
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

    fn initialized(&self, client: &Client) {
        if self.by_hand() {
            client.say(vec![Said::answer(r#"{"jsonrpc":"2.0","result":{}}"#)]);
        }
    }

    fn garbled(&self, client: &Client) {
        if self.by_hand() {
            client.refuse(&Value::Null, -32700, "Parse error");
        }
    }

    fn knows(&self, method: &str) -> bool {
        match self.generation() {
            K1 | K3s => method != "ping",
            K2 | K3h => method == "tools/call",
            _ => true,
        }
    }

    /// Over HTTP even a notification gets an error, which then has no id.
    fn puzzled(&self, client: &Client, id: Option<&Value>, method: &str) {
        if matches!(self.generation(), K2 | K3h) {
            let id = id.map(|id| format!(r#""id":{id},"#)).unwrap_or_default();
            let message = support::quoted(&format!("Method {method} not supported here."));
            client.say(vec![Said::answer(format_args!(
                r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32601,"message":{message}}}}}"#
            ))]);
        } else if let Some(id) = id {
            client.refuse(id, -32601, &format!("Method not implemented: {method}"));
        }
    }

    fn elsewhere(&self, method: &str, path: &str, body: &Value) -> Option<String> {
        match (method, path) {
            ("POST", "/initialize") => {
                let result = support::introduction(self, body["protocolVersion"].as_str());
                Some(format!(r#"{{"jsonrpc":"2.0","id":null,"result":{result}}}"#))
            }
            ("GET", "/tools/list") => Some(support::described(self.tools())),
            _ => None,
        }
    }

    /// No generation knows of cancelling.
    fn call(&self, call: &Call) -> Result<(), Cancelled> {
        // In its language 0 and "" are as good as nothing.
        let mut call = call.clone();
        if matches!(self.generation(), K2 | K3h) && is_falsy(&call.id) {
            call.id = json!(support::uuid());
        }
        let call = &call;
        match call.tool.as_str() {
            _ if !self.tools().iter().any(|tool| tool.name == call.tool) => self.unknown(call),
            _ if self.generation() == Head => self.log_progress(call),
            "pagerank" => self.stream(call, pagerank(call)),
            "get-component-dependencies" => self.stream(call, dependencies(call)),
            _ if matches!(self.generation(), K2 | K3h) => self.finish(call, &success(call)),
            _ => {
                thread::sleep(self.pace.unwrap_or_default());
                self.answer(call, &support::text_result(&support::pretty(&success(call)), false));
            }
        }
        Ok(())
    }
}

impl KuzuMem {
    fn generation(&self) -> Generation {
        let usual = || if self.listen.http.is_some() { K5 } else { K1 };
        self.generation.unwrap_or_else(usual)
    }

    /// Whether the protocol is hand-written and not left to the official SDK.
    fn by_hand(&self) -> bool {
        matches!(self.generation(), K1 | K2 | K3s | K3h)
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
        let rich = || support::compact(&marked(step, last));
        let (id, kind, text) = match self.generation() {
            K1 | K2 => (id.to_string(), "text", support::pretty(step)),
            K3s => (stringified(id), "RichText", rich()),
            K3h => (id.to_string(), "RichText", rich()),
            K6 => (r#""unknown""#.to_owned(), "RichText", rich()),
            K4 => return call.notify(standard(id, tool, step, last)),
            K5 if is_falsy(id) => return call.notify(spread(&json!(support::uuid()), step, last)),
            K5 => return call.notify(spread(id, step, last)),
            Head => return,
        };
        let text = support::quoted(&text);
        call.notify(format_args!(
            r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":{id},"content":[{{"type":"{kind}","text":{text}}}],"isFinal":{last}}}}}"#
        ));
    }

    /// The text that `console.log` adds to the wire.
    fn chatter(&self, call: &Call, step: &Fields, at: usize) {
        let (tool, status) = (&call.tool, &step[0].1.as_str().unwrap_or_default());
        let print = |text: &str| call.client.print(text);
        match self.generation() {
            K1 if at == 0 => print("KuzuDBClient: Executing query (no parameters)\n"),
            K3s => print(&format!(
                "KuzuDBClient: Executing query for {tool}\n[SimpleEchoOperation] {tool}: {status}\n"
            )),
            K4 => print(&format!(
                "[Tool: {tool}] Sending Progress: {{\n  status: '{status}',\n  toolName: '{tool}',\n  data: [Object]\n}}\n{{\n  iteration: {at},\n  done: false\n}}\n"
            )),
            _ => {}
        }
    }

    fn finish(&self, call: &Call, result: &Fields) {
        let proper = |text: String| self.answer(call, &support::text_result(&text, false));
        match self.generation() {
            K2 | K3s | K3h => self.answer(call, &support::compact(result)),
            K4 | K5 => proper(support::compact(result)),
            K6 => {
                call.client.answer(&json!("unknown"), support::compact(result));
                proper(support::pretty(result));
            }
            K1 | Head => proper(support::pretty(result)),
        }
    }

    fn fail(&self, call: &Call, error: &str) {
        let standard = matches!(self.generation(), K4 | K5);
        let message = if standard { "message" } else { "error" };
        let failure = vec![(message, json!(error)), ("status", json!("error"))];
        self.progress(call, &failure, true);
        match self.generation() {
            K2 | K3h => refuse(call, &call.id.to_string(), error),
            K3s => refuse(call, &stringified(&call.id), error),
            K4 | K5 => self.finish(call, &failure),
            generation => {
                if generation == K6 {
                    refuse(call, r#""unknown""#, error);
                }
                let text = support::pretty(&[("error", json!(error))]);
                self.answer(call, &support::text_result(&text, true));
            }
        }
    }

    fn unknown(&self, call: &Call) {
        let error = format!("Tool '{}' not found in definitions.", call.tool);
        match self.generation() {
            K3s => self.fail(call, &error),
            K2 | K3h => {
                let error = format!("Tool execution handler not implemented for '{}'.", call.tool);
                self.progress(call, &vec![("error", json!(error))], true);
                refuse(call, &call.id.to_string(), &error);
            }
            _ => self.answer(call, &support::text_result(&error, true)),
        }
    }

    fn answer(&self, call: &Call, result: &str) {
        let id = &call.id;
        match self.generation() {
            K1 | K2 | K3h => call.finish(result),
            K3s => call.client.answer(&json!(id.as_str().unwrap_or(&id.to_string())), result),
            _ => call.client.say(vec![Said::answer(format_args!(
                r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#
            ))]),
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

/// An error with neither code nor message.
fn refuse(call: &Call, id: &str, error: &str) {
    let error = support::quoted(error);
    call.client.say(vec![Said::answer(format_args!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"error":{error}}}}}"#
    ))]);
}

fn is_falsy(id: &Value) -> bool {
    *id == json!(0) || *id == json!("")
}

fn main() {
    let server = KuzuMem::parse();
    let generation = server.generation();
    if matches!(generation, K2 | K3h | K5) != server.listen.http.is_some() {
        eprintln!("k2, k3h and k5 speak HTTP (--http), the others stdio");
        process::exit(2);
    }
    if matches!(generation, K1 | K3s) {
        Client::Stdio.print(
            "Using KuzuDB database at: /var/lib/kuzumem/memory-bank.kuzu\n\
             MCP_STDIO_SERVER_READY_FOR_TESTING\n",
        );
    }
    if generation == K3s {
        Client::Stdio.print("KuzuDBClient: Initialized database and connection\n");
    }
    support::serve(server);
}
