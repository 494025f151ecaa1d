//! SwissArmyHammer, a toolbox for coding agents, on its way to progress tokens.
//!
//! * `s0` (2025): what its progress structs serialise to. Keys in snake case, tokens of its own
//!   making, whatever metadata a tool has beside them (where a `total` of engines looks like the
//!   total of a percentage), and a `progress` that is a count of lines, missing, or null. The real
//!   structs never left the process; here they reach the wire.
//!   ```json
//!   {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress_token":"shell_01JG…","progress":10,"message":"Shell output: 10 lines processed"}}
//!   {"jsonrpc":"2.0","method":"notifications/progress","params":{"token":"01JG…","progress":null,"message":"Workflow failed: implement","type":"FlowError"}}
//!   ```
//! * `s1` (early 2026): the same words as log messages. `logger` is the tool, `data` a plain string.
//!   ```json
//!   {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"shell","data":"Shell: Executing: cargo build"}}
//!   ```
//! * `s2` (2026): the client's token, and figures that never fall. But they repeat, the total
//!   grows, and after ten seconds without news the last notification is sent again to the letter,
//!   for clients whose timeout looks at progress.
//!   ```json
//!   {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1.0,"total":3.0,"message":"Reviewing src/lib.rs"}}
//!   {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1.0,"total":3.0,"message":"Reviewing src/lib.rs"}}
//!   ```
//!
//! The tools of `s0` and `s1` are `shell`, `flow` and `web_search`, those of `s2` `code_context` and
//! `review`; `review` is the one that keeps alive.
//!
//! Run it with `cargo run --example swissarmyhammer -- --generation s2 --keep-alive 1s`, and behind
//! milepost with `milepost wrap -- target/debug/examples/swissarmyhammer --generation s2`.
//!
//! Over HTTP log messages go to the GET stream, and progress to the stream of its call. That begins
//! with a block that has no message but asks the client to come back if the stream breaks.
//!
//! ```text
//! data:
//! id: 0/0
//! retry: 3000
//!
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.0,"total":0.0,"message":"Scoping"}}
//! id: 1/0
//! ```
//!
//! `cargo run --example swissarmyhammer -- --http 127.0.0.1:8013 --generation s2 --keep-alive 1s`

mod support;

use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use support::{Call, Cancelled, Fields, Library, Listen, Server, Tool};

/// One generation of SwissArmyHammer.
#[derive(Parser)]
struct SwissArmyHammer {
    /// The generation of the server
    #[arg(long, visible_alias = "variant", value_enum, default_value_t = Generation::S0)]
    generation: Generation,
    /// Time between the steps of a tool
    #[arg(long, value_name = "DURATION", default_value = "300ms", value_parser = support::duration)]
    pace: Duration,
    /// How long `review` leaves the client without news
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = support::duration)]
    keep_alive: Duration,
    #[command(flatten)]
    listen: Listen,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Generation {
    S0,
    S1,
    S2,
}
use Generation::{S0, S1, S2};

const TOOLS: [Tool; 5] = [
    Tool {
        name: "shell",
        description: "Runs a command, telling of every tenth line of its output",
        arguments: &[("command", "string", "The command; `false` fails")],
    },
    Tool {
        name: "flow",
        description: "Runs a workflow, telling of its states",
        arguments: &[("flow_name", "string", "The workflow; `broken` fails")],
    },
    Tool {
        name: "web_search",
        description: "Asks three search engines",
        arguments: &[("query", "string", "What to look for")],
    },
    Tool {
        name: "code_context",
        description: "Rebuilds the index of a project, which grows as it is read",
        arguments: &[],
    },
    Tool {
        name: "review",
        description: "Reviews three files, thinking long about each",
        arguments: &[],
    },
];

impl Server for SwissArmyHammer {
    fn identity(&self) -> (&'static str, &'static str) {
        ("swissarmyhammer", if self.generation == S0 { "0.1.0" } else { "0.12.0" })
    }

    fn listen(&self) -> Listen {
        self.listen
    }

    fn library(&self) -> Library {
        Library::Rmcp17
    }

    fn tools(&self) -> &'static [Tool] {
        if self.generation == S2 { &TOOLS[3..] } else { &TOOLS[..3] }
    }

    fn call(&self, call: &Call) -> Result<(), Cancelled> {
        match (self.generation, call.tool.as_str()) {
            (S0 | S1, "shell") => self.shell(call),
            (S0 | S1, "flow") => self.flow(call),
            (S0 | S1, "web_search") => self.web_search(call),
            (S2, "code_context") => self.code_context(call),
            (S2, "review") => self.review(call),
            _ => {
                call.unknown_tool();
                Ok(())
            }
        }
    }
}

/// The first two generations: sent whether or not the client asked.
impl SwissArmyHammer {
    fn shell(&self, call: &Call) -> Result<(), Cancelled> {
        const LINES: u32 = 42;
        let token = format!("shell_{}", support::ulid());
        let tell = |fields| self.tell(call, "shell", ("progress_token", &token), fields);
        let command = call.text("command").unwrap_or("cargo build");
        tell(vec![
            ("message", json!(format!("Shell: Executing: {command}"))),
            ("command", json!(command)),
        ]);
        for lines in (10..LINES).step_by(10) {
            call.wait(self.pace)?;
            tell(vec![
                ("progress", json!(lines)),
                ("message", json!(format!("Shell output: {lines} lines processed"))),
            ]);
        }
        call.wait(self.pace)?;
        if command == "false" {
            tell(vec![
                ("message", json!("Shell: Failed - exit code 1")),
                ("error", json!("exit code 1")),
                ("command", json!(command)),
            ]);
            call.finish(support::text_result("exit code 1", true));
            return Ok(());
        }
        tell(vec![
            ("progress", json!(LINES)),
            ("message", json!(format!("Command completed: {LINES} lines, exit code 0"))),
            ("exit_code", json!(0)),
            ("duration_ms", json!(45)),
            ("line_count", json!(LINES)),
            ("output_truncated", json!(false)),
        ]);
        if self.generation == S1 {
            // Over HTTP the last message goes on another stream than the answer.
            call.wait(self.pace)?;
        }
        call.answer(&format!("{LINES} lines of output"));
        Ok(())
    }

    fn flow(&self, call: &Call) -> Result<(), Cancelled> {
        let run = support::ulid();
        let name = call.text("flow_name").unwrap_or("implement");
        let tell = |progress: Value, message: String, kind: &str, details: Fields| {
            let mut fields = vec![("progress", progress), ("message", json!(message))];
            fields.extend([("type", json!(kind)), ("flow_name", json!(name))]);
            fields.extend(details);
            self.tell(call, &format!("flow:{name}"), ("token", &run), fields);
        };
        let start = vec![("parameters", json!({})), ("initial_state", json!("plan"))];
        tell(json!(0), format!("Starting workflow: {name}"), "FlowStart", start);
        for (percent, state) in [(25, "plan"), (50, "write"), (75, "test")] {
            call.wait(self.pace)?;
            let message = format!("Entering state: {state}");
            tell(json!(percent), message, "StateStart", vec![("state_id", json!(state))]);
        }
        call.wait(self.pace)?;
        if name == "broken" {
            let details = vec![
                ("status", json!("failed")),
                ("error_state", json!("test")),
                ("error", json!("a test failed")),
            ];
            tell(Value::Null, format!("Workflow failed: {name}"), "FlowError", details);
            call.finish(support::text_result("a test failed", true));
        } else {
            let details = vec![("status", json!("completed")), ("final_state", json!("test"))];
            tell(json!(100), format!("Workflow completed: {name}"), "FlowComplete", details);
            call.answer("completed");
        }
        Ok(())
    }

    /// A percentage beside `current` and `total`, which count something else.
    fn web_search(&self, call: &Call) -> Result<(), Cancelled> {
        const ENGINES: u32 = 3;
        let token = format!("search_{}", support::ulid());
        for current in 0..=ENGINES {
            self.tell(
                call,
                "web_search",
                ("progress_token", &token),
                vec![
                    ("progress", json!(current * 100 / ENGINES)),
                    ("message", json!(format!("Search engines: {current}/{ENGINES}"))),
                    ("current", json!(current)),
                    ("total", json!(ENGINES)),
                ],
            );
            call.wait(self.pace)?;
        }
        call.answer("no results");
        Ok(())
    }

    /// The fields of a struct, metadata and all, side by side, or what they say as a log message.
    fn tell(&self, call: &Call, logger: &str, token: (&'static str, &str), fields: Fields) {
        if self.generation == S1 {
            let message = fields.iter().find(|(key, _)| *key == "message");
            return log(call, logger, &message.expect("all have one").1.to_string());
        }
        let token = (token.0, json!(token.1));
        let params = support::compact(&[token].into_iter().chain(fields).collect::<Fields>());
        call.notify(format_args!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#
        ));
    }
}

/// The later generation: the client's token, and logs for clients without.
impl SwissArmyHammer {
    fn code_context(&self, call: &Call) -> Result<(), Cancelled> {
        const STEPS: [(f64, f64, &str); 10] = [
            (0.0, 0.0, "Downloading embedding model: 31 MB"),
            (0.0, 0.0, "Downloading embedding model: 88 MB"),
            (0.0, 12.0, "Found 12 files"),
            (4.0, 12.0, "Indexed src/lib.rs"),
            (8.0, 20.0, "Indexed src/main.rs"),
            (8.0, 27.0, "Found 15 more files in crates/"),
            (15.0, 27.0, "Indexed crates/core/src/lib.rs"),
            (27.0, 27.0, "Indexed tests/it.rs"),
            (27.0, 27.0, "Embedding 311 chunks"),
            (27.0, 27.0, "Writing the index"),
        ];
        for (progress, total, message) in STEPS {
            report(call, progress, total, message);
            call.wait(self.pace)?;
        }
        call.answer("indexed 27 files");
        Ok(())
    }

    fn review(&self, call: &Call) -> Result<(), Cancelled> {
        const FILES: [&str; 3] = ["src/lib.rs", "src/main.rs", "tests/it.rs"];
        report(call, 0.0, 0.0, "Scoping");
        call.wait(self.pace)?;
        report(call, 0.0, 3.0, "Planned");
        for (done, file) in [0.0, 1.0, 2.0].into_iter().zip(FILES) {
            call.wait(self.pace)?;
            let message = format!("Reviewing {file}");
            report(call, done, 3.0, &message);
            // Long enough for news to be missed twice, and a little more.
            for _ in 0..2 {
                call.wait(self.keep_alive)?;
                keep_alive(call, done, &message);
            }
            call.wait(self.keep_alive / 2)?;
        }
        report(call, 3.0, 3.0, "Reviewed 3 files");
        call.answer("nothing to complain of");
        Ok(())
    }
}

/// Progress of the later generation.
fn report(call: &Call, progress: f64, total: f64, message: &str) {
    match &call.token {
        Some(token) => {
            let (progress, total) = (Value::from(progress), Value::from(total));
            let message = support::quoted(message);
            call.notify(format_args!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress},"total":{total},"message":{message}}}}}"#
            ));
        }
        None => log(call, &call.tool, &support::quoted(message)),
    }
}

fn keep_alive(call: &Call, done: f64, message: &str) {
    if call.token.is_some() {
        report(call, done, 3.0, message);
    } else {
        log(call, &call.tool, r#"{"kind":"review.keep-alive","message":"review in progress"}"#);
    }
}

fn log(call: &Call, logger: &str, data: &str) {
    call.aside(format_args!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","logger":"{logger}","data":{data}}}}}"#
    ));
}

fn main() {
    support::serve(SwissArmyHammer::parse());
}
