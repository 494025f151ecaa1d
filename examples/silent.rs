//! A server that says nothing until it answers: the commonest of them all.
//!
//! The example stands for every MCP server whose tools run long without a word, and behaves in all other
//! respects: its `burst` tool even reports progress, by the book, but writes "100 %" and the answer
//! in one piece, as servers do that report the end and return. A client on the TypeScript SDK that
//! reads both at once handles the answer first and calls the progress an error.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":100,"total":100,"message":"done"}}
//! {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"done"}],"isError":false}}
//! ```
//!
//! Run it with `cargo run --example silent -- --pace 5s`, and behind milepost with
//! `milepost wrap -- target/debug/examples/silent --pace 5s`.
//!
//! Over HTTP it answers with events, or with `--json` as many do: nothing until it is done, then
//! plain JSON. `--early-headers` sends the headers at once, `--sessions` numbers its clients.
//!
//! ```text
//! HTTP/1.1 200 OK
//! content-type: application/json
//!
//! {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"slept for 5s"}],"isError":false}}
//! ```
//!
//! `cargo run --example silent -- --http 127.0.0.1:8011 --json --pace 5s`

mod support;

use std::time::Duration;

use clap::Parser;
use support::{Call, Cancelled, Library, Listen, Said, Server, Tool};

/// A server whose tools work long and say nothing.
#[derive(Parser)]
struct Silent {
    /// How long a tool works unless its arguments say otherwise
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = support::duration)]
    pace: Duration,
    /// Over HTTP: answer with plain JSON, not with events
    #[arg(long, requires = "http")]
    json: bool,
    /// With --json: send the headers at once, not with the body
    #[arg(long, requires = "json")]
    early_headers: bool,
    /// Over HTTP: have sessions
    #[arg(long, requires = "http")]
    sessions: bool,
    #[command(flatten)]
    listen: Listen,
}

impl Server for Silent {
    fn identity(&self) -> (&'static str, &'static str) {
        ("silent", "1.0.0")
    }

    fn listen(&self) -> Listen {
        self.listen
    }

    fn library(&self) -> Library {
        Library::Plain { json: self.json, early: self.early_headers, sessions: self.sessions }
    }

    fn tools(&self) -> &'static [Tool] {
        &[
            Tool {
                name: "sleep",
                description: "Says nothing for a while, then answers",
                arguments: &[("seconds", "number", "How long to sleep")],
            },
            Tool {
                name: "echo",
                description: "Answers at once with the text it was given",
                arguments: &[("text", "string", "What to say")],
            },
            Tool {
                name: "burst",
                description: "Works, then reports 100 % and answers in one write",
                arguments: &[("seconds", "number", "How long to work")],
            },
        ]
    }

    fn call(&self, call: &Call) -> Result<(), Cancelled> {
        match call.tool.as_str() {
            "sleep" => {
                let nap = self.length(call);
                call.wait(nap)?;
                call.answer(&format!("slept for {nap:?}"));
            }
            "echo" => call.answer(call.text("text").unwrap_or_default()),
            "burst" => {
                call.wait(self.length(call))?;
                burst(call);
            }
            _ => call.unknown_tool(),
        }
        Ok(())
    }
}

impl Silent {
    fn length(&self, call: &Call) -> Duration {
        let seconds = call.arguments["seconds"].as_f64();
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(self.pace)
    }
}

/// Both in one write, so that a client is likely to read them at once.
fn burst(call: &Call) {
    let progress = call.token.as_ref().map(|token| Said::notification(format_args!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":100,"total":100,"message":"done"}}}}"#
    )));
    let (id, result) = (&call.id, support::text_result("done", false));
    let answer = Said::answer(format_args!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    call.client.say(progress.into_iter().chain([answer]).collect());
}

fn main() {
    support::serve(Silent::parse());
}
