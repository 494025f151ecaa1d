//! Plexus substrate, a hub of activations behind an MCP bridge.
//!
//! The bridge takes the client's token, but most activations know no percentage, and then it says
//! 0.0 again and again, with new text each time. What an activation streams goes out as log
//! messages whose `logger` names the tool; the plain result at the end repeats all of it.
//!
//! ```json
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.0,"message":"Thinking"}}
//! {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"plexus.claudecode.chat","data":{"type":"data","content_type":"claudecode.chat","data":"All "}}}
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.0,"message":"Calling Read"}}
//! ```
//!
//! `claudecode.chat` is such an activation; `orcha.run_task` is the one that gives percentages,
//! with a branch that falls back. The real one speaks Streamable HTTP, this one stdio.
//!
//! Run it with `cargo run --example plexus -- --pace 500ms`, and behind milepost with
//! `milepost wrap -- target/debug/examples/plexus`.

mod support;

use std::time::Duration;

use clap::Parser;
use serde_json::Value;
use support::{Call, Cancelled, Server, Tool};

/// The MCP bridge of Plexus substrate.
#[derive(Parser)]
struct Plexus {
    /// Time between the events of an activation
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = support::duration)]
    pace: Duration,
}

/// What an activation streams.
enum Event {
    Progress(&'static str, Option<f32>),
    Data(&'static str),
    Error(&'static str),
}
use Event::{Data, Error, Progress};

const CHAT: [Event; 10] = [
    Progress("Starting session", None),
    Progress("Thinking", None),
    Data("All "),
    Progress("Calling Read", None),
    Progress("Calling Grep", None),
    Data("seems "),
    Error("rate limited, trying again"),
    Progress("Thinking", None),
    Data("well."),
    Progress("Finishing", None),
];

const ORCHA: [Event; 9] = [
    Progress("Creating session", Some(10.0)),
    Progress("Running agent", Some(20.0)),
    Data("first attempt failed\n"),
    Progress("Retrying", Some(20.0)),
    Progress("Running agent", Some(30.0)),
    Progress("Validating", Some(40.0)),
    Progress("Checking artifacts", None),
    Progress("Validated", Some(70.0)),
    Data("second attempt passed\n"),
];

impl Server for Plexus {
    fn identity(&self) -> (&'static str, &'static str) {
        ("plexus", "0.2.0")
    }

    fn tools(&self) -> &'static [Tool] {
        &[
            Tool {
                name: "claudecode.chat",
                description: "Talks to a coding agent, which tells what it does but not how far it is",
                arguments: &[("prompt", "string", "What to say to it")],
            },
            Tool {
                name: "orcha.run_task",
                description: "Runs a task until it passes, with percentages",
                arguments: &[("task", "string", "What to do")],
            },
        ]
    }

    /// The bridge offers what its library knows newest, whatever the client asked for.
    fn protocol_version(&self, _: Option<&str>) -> String {
        "2025-03-26".to_owned()
    }

    fn capabilities(&self) -> &'static str {
        r#"{"logging":{},"tools":{}}"#
    }

    fn call(&self, call: &Call) -> Result<(), Cancelled> {
        match call.tool.as_str() {
            "claudecode.chat" => self.bridge(call, &CHAT),
            "orcha.run_task" => self.bridge(call, &ORCHA),
            _ => {
                call.unknown_tool();
                Ok(())
            }
        }
    }
}

impl Plexus {
    fn bridge(&self, call: &Call, events: &[Event]) -> Result<(), Cancelled> {
        let mut result = String::new();
        for event in events {
            match event {
                Progress(message, percentage) => progress(call, message, *percentage),
                Data(data) => {
                    result.push_str(data);
                    let (kind, data) = (&call.tool, support::quoted(data));
                    let data = format!(r#""type":"data","content_type":"{kind}","data":{data}"#);
                    log(call, "info", &data);
                }
                Error(error) => {
                    let error = support::quoted(error);
                    let data = format!(r#""type":"error","error":{error},"recoverable":true"#);
                    log(call, "error", &data);
                }
            }
            call.wait(self.pace)?;
        }
        call.answer(&result);
        Ok(())
    }
}

fn progress(call: &Call, message: &str, percentage: Option<f32>) {
    let Some(token) = &call.token else { return };
    let progress = Value::from(f64::from(percentage.unwrap_or(0.0)));
    let message = support::quoted(message);
    support::say(format_args!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress},"message":{message}}}}}"#
    ));
}

fn log(call: &Call, level: &str, data: &str) {
    let logger = &call.tool;
    support::say(format_args!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","logger":"plexus.{logger}","data":{{{data}}}}}}}"#
    ));
}

fn main() {
    support::serve(Plexus::parse());
}
