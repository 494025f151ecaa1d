//! The `project_actions` tool of mcp-devtools, which reports every line a command prints.
//!
//! A notification for each line of output, without any limit: the number of the line, no total, and
//! the raw line as the message, empty or colored as it may be. A test suite makes thousands.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"--- PASS: TestParse (0.00s)","progress":7,"progressToken":"t"}}
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"","progress":8,"progressToken":"t"}}
//! ```
//!
//! The server looks for the token in `arguments._meta`, where no client puts it, and takes only strings, so that
//! without `milepost wrap --ask-token-in-arguments` no call has progress; `--token-from meta` looks where the
//! token is. A goroutine apart from the answer's writes its notifications, so that some may come after the
//! answer: so does `--late N`.
//!
//! Run it with `cargo run --example mcp_devtools -- --lines 5000`, and behind milepost with
//! `milepost wrap -- target/debug/examples/mcp_devtools`.
//!
//! `code_search` tells how far its index is in log messages that name nobody.
//!
//! Over HTTP nothing is sent before the first notification, not even headers; with that the answer
//! becomes a stream of events. A call without notifications, which is every one that has no token in
//! `arguments._meta`, gets plain JSON when it is done. What is late is lost.
//!
//! ```text
//! event: message
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"make test","progress":1,"progressToken":"t"}}
//! ```
//!
//! `cargo run --example mcp_devtools -- --http 127.0.0.1:8012 --lines 5000`

mod support;

use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::Value;
use support::{Call, Cancelled, Library, Listen, Server, Tool};

/// How many times a command fills the pipe it prints to, by and large.
const BURSTS: usize = 10;

/// mcp-devtools with its project actions.
#[derive(Parser)]
struct McpDevtools {
    /// Time between the ten bursts in which the output comes
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = support::duration)]
    pace: Duration,
    /// How many lines the command prints
    #[arg(long, value_name = "N", default_value_t = 5000)]
    lines: usize,
    /// How many of the last notifications come after the answer
    #[arg(long, value_name = "N", default_value_t = 0)]
    late: usize,
    /// Where to look for the progress token: as the real one in `arguments._meta`, or in `params._meta`
    #[arg(long, value_enum, default_value = "arguments")]
    token_from: TokenFrom,
    #[command(flatten)]
    listen: Listen,
}

#[derive(Clone, Copy, ValueEnum)]
enum TokenFrom {
    Meta,
    Arguments,
}

impl Server for McpDevtools {
    fn identity(&self) -> (&'static str, &'static str) {
        ("mcp-devtools", "0.0.0-dev")
    }

    fn listen(&self) -> Listen {
        self.listen
    }

    fn library(&self) -> Library {
        Library::McpGo
    }

    fn tools(&self) -> &'static [Tool] {
        &[
            Tool {
                name: "project_actions",
                description: "Runs a make target, reporting each line it prints",
                arguments: &[
                    ("operation", "string", "The target"),
                    ("lines", "integer", "How many lines it prints"),
                ],
            },
            Tool {
                name: "code_search",
                description: "Indexes a project, telling of it in log messages",
                arguments: &[("query", "string", "What to look for")],
            },
        ]
    }

    fn call(&self, call: &Call) -> Result<(), Cancelled> {
        if call.tool == "project_actions" {
            return self.make(call);
        }
        if call.tool == "code_search" {
            return self.search(call);
        }
        call.unknown_tool();
        Ok(())
    }
}

impl McpDevtools {
    fn make(&self, call: &Call) -> Result<(), Cancelled> {
        let target = call.text("operation").unwrap_or("test");
        let lines = call.arguments["lines"].as_u64().map_or(self.lines, |lines| lines as usize);
        let output: Vec<_> = (1..=lines).map(|number| printed(target, number, lines)).collect();
        let token = self.token(call);
        let reports = output.iter().zip(1..).map(|(line, number)| {
            let message = support::quoted(line);
            token.map(|token| format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"message":{message},"progress":{number},"progressToken":{token}}}}}"#
            ))
        });
        let reports: Vec<_> = reports.collect();
        let (timely, late) = reports.split_at(lines.saturating_sub(self.late));
        for burst in timely.chunks(lines.div_ceil(BURSTS).max(1)) {
            burst.iter().flatten().for_each(|report| call.notify(report));
            call.wait(self.pace)?;
        }
        call.answer(&output.join("\n"));
        late.iter().flatten().for_each(|report| call.notify(report));
        Ok(())
    }

    /// Log messages without a logger, whoever asks.
    fn search(&self, call: &Call) -> Result<(), Cancelled> {
        const FILES: usize = 48;
        for done in (0..=FILES).step_by(FILES / 4) {
            call.notify(format_args!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"Indexed {done}/{FILES} files","level":"info"}}}}"#
            ));
            call.wait(self.pace)?;
        }
        call.answer("no matches");
        Ok(())
    }

    fn token<'a>(&self, call: &'a Call) -> Option<&'a Value> {
        match self.token_from {
            TokenFrom::Meta => call.token.as_ref(),
            TokenFrom::Arguments => {
                call.arguments["_meta"].get("progressToken").filter(|token| token.is_string())
            }
        }
    }
}

/// The line of that number, out of so many.
fn printed(target: &str, number: usize, lines: usize) -> String {
    match number % 8 {
        _ if number == 1 => format!("make {target}"),
        _ if number == lines => "ok  \texample.org/project\t0.412s".to_owned(),
        0 => String::new(),
        3 => format!("\u{1b}[32m✓\u{1b}[0m TestCase{number}"),
        7 => format!("--- PASS: TestCase{number} (0.00s)"),
        5 => format!("    case_test.go:{number}: \"quoted\" \\ and\ttabbed"),
        _ => format!("=== RUN   TestCase{number}"),
    }
}

fn main() {
    support::serve(McpDevtools::parse());
}
