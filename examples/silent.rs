//! A server that says nothing until it answers: the commonest of them all.
//!
//! It stands for every MCP server whose tools run long without a word, and behaves in all other
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

mod support;

use std::time::Duration;

use clap::Parser;
use support::{Call, Cancelled, Server, Tool};

/// A server whose tools work long and say nothing.
#[derive(Parser)]
struct Silent {
    /// How long a tool works unless its arguments say otherwise
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = support::duration)]
    pace: Duration,
}

impl Server for Silent {
    fn identity(&self) -> (&'static str, &'static str) {
        ("silent", "1.0.0")
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

/// Both lines in one write, so that a client is likely to read them at once.
fn burst(call: &Call) {
    let progress = call.token.as_ref().map(|token| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":100,"total":100,"message":"done"}}}}{}"#,
            '\n'
        )
    });
    let (progress, id) = (progress.unwrap_or_default(), &call.id);
    let result = support::text_result("done", false);
    support::say_raw(&format!(
        "{progress}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n"
    ));
}

fn main() {
    support::serve(Silent::parse());
}
