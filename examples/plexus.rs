//! Plexus substrate, a hub of activations behind an MCP bridge.
//!
//! The bridge (`p2`) takes the client's token, but most activations know no percentage, and then it says
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
//! with a branch that falls back. The real one speaks Streamable HTTP; this one also stdio.
//!
//! Run it with `cargo run --example plexus -- --pace 500ms`, and behind milepost with
//! `milepost wrap -- target/debug/examples/plexus`.
//!
//! Over HTTP progress is on the stream of its call and log messages are on the GET stream, and there
//! are two more variants. `p1` is the first bridge, which counts: 1 of 6, 2 of 6. With
//! `--invented-token` either makes its tokens up, and then progress goes to the GET stream as well.
//!
//! ```text
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1.0,"total":6.0,"message":"Starting session"}}
//! id: 0/0
//! ```
//!
//! `p0` is what had been planned before: a token made up for every call, a new session for every
//! answer, data and tools as progress whose figure is the number of the event. Other events count as
//! well, but are not told. With `--no-figures` there is only text.
//!
//! ```text
//! event: message
//! id: evt-3
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"8c0f…","progress":3,"message":"All "}}
//! ```
//!
//! `cargo run --example plexus -- --http 127.0.0.1:4445 --variant p1`

mod support;

use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::Value;
use support::{Call, Cancelled, Library, Listen, Said, Server, Tool};

/// The MCP bridge of Plexus substrate.
#[derive(Parser)]
struct Plexus {
    /// Time between the events of an activation
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = support::duration)]
    pace: Duration,
    /// The variant of the server
    #[arg(long, value_enum, default_value_t = Variant::P2)]
    variant: Variant,
    /// Make up a token for every call and not use the client's
    #[arg(long)]
    invented_token: bool,
    /// Leave `progress` out of the notifications of p0
    #[arg(long)]
    no_figures: bool,
    #[command(flatten)]
    listen: Listen,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Variant {
    P0,
    P1,
    P2,
}
use Variant::{P0, P1, P2};

/// The items that an activation streams.
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

    fn listen(&self) -> Listen {
        self.listen
    }

    fn library(&self) -> Library {
        if self.variant == P0 { Library::Plan } else { Library::Rmcp012 }
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
        let events: &[Event] = match call.tool.as_str() {
            "claudecode.chat" => &CHAT,
            "orcha.run_task" => &ORCHA,
            _ if self.variant == P0 => {
                let error = format!("Method not found: {}", call.tool);
                call.finish(support::text_result(&error, true));
                return Ok(());
            }
            _ => {
                call.unknown_tool();
                return Ok(());
            }
        };
        if self.variant == P0 { self.plan(call, events) } else { self.bridge(call, events) }
    }
}

impl Plexus {
    fn bridge(&self, call: &Call, events: &[Event]) -> Result<(), Cancelled> {
        let mut result = String::new();
        let steps = events.iter().filter(|event| matches!(event, Progress(..))).count();
        let (mut done, invented) = (0, self.invented_token.then(support::uuid));
        for event in events {
            match event {
                Progress(message, percentage) => {
                    done += 1;
                    let figures = match self.variant {
                        P2 => format!("{:?}", f64::from(percentage.unwrap_or(0.0))),
                        P0 | P1 => format!(r#"{done}.0,"total":{steps}.0"#),
                    };
                    progress(call, invented.as_deref(), &figures, message);
                }
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

    /// As it was planned: whatever is data or a tool is progress.
    fn plan(&self, call: &Call, events: &[Event]) -> Result<(), Cancelled> {
        let (token, mut result) = (support::uuid(), String::new());
        for (number, event) in (1..).zip(events) {
            let told = match event {
                Data(data) => {
                    result.push_str(data);
                    Some((*data).to_owned())
                }
                Progress(message, _) => {
                    message.strip_prefix("Calling ").map(|name| format!("Using tool: {name}"))
                }
                Error(_) => None,
            };
            if let Some(message) = told {
                let message = support::quoted(&message);
                let figure = if self.no_figures {
                    String::new()
                } else {
                    format!(r#""progress":{number},"#)
                };
                let said = Said::notification(format_args!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{token}",{figure}"message":{message}}}}}"#
                ));
                call.client.say(vec![Said { event: Some(format!("evt-{number}")), ..said }]);
            }
            call.wait(self.pace)?;
        }
        call.answer(&result);
        Ok(())
    }
}

/// The library knows which call a token of the client is about, and of no other token.
fn progress(call: &Call, invented: Option<&str>, figures: &str, message: &str) {
    let invented = invented.map(Value::from);
    let Some(token) = invented.as_ref().or(call.token.as_ref()) else { return };
    let message = support::quoted(message);
    let progress = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{figures},"message":{message}}}}}"#
    );
    if invented.is_some() { call.aside(progress) } else { call.notify(progress) }
}

fn log(call: &Call, level: &str, data: &str) {
    let logger = &call.tool;
    call.aside(format_args!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","logger":"plexus.{logger}","data":{{{data}}}}}}}"#
    ));
}

fn main() {
    support::serve(Plexus::parse());
}
