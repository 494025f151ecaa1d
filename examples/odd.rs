//! A server whose tools each have one habit that public bug reports tell of.
//!
//! Each tool is the smallest server with that habit, so that a test can compare what a client gets
//! directly with what it gets behind Milepost.
//!
//! ```json
//! {"jsonrpc":"2.0","id":2,"method":null,"params":null,"result":{"content":[{"type":"text","text":"nulls"}],"isError":false},"error":null}
//! {"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found: notifications/initialized"}}
//! ```
//!
//! Run it with `cargo run --example odd`, and behind milepost with `milepost wrap -- target/debug/examples/odd`.
//! Over HTTP, `--answers get` accepts a call with 202 and answers on the client's GET stream, and
//! `--answers accepted` sends the events of a call with status 202:
//! `cargo run --example odd -- --http 127.0.0.1:8012 --answers get`.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::Value;
use support::library::Answers;
use support::{Call, Cancelled, Client, Library, Listen, Said, Server, Tool};

/// A server with one odd habit in each tool.
#[derive(Parser)]
struct Odd {
    /// Time between two reports of a tool
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = support::duration)]
    pace: Duration,
    /// Answer notifications that the server does not know with an error without an id
    #[arg(long)]
    grumble: bool,
    /// Over HTTP: where and how a call is answered
    #[arg(long, value_enum, default_value_t = Place::Post, requires = "http")]
    answers: Place,
    #[command(flatten)]
    listen: Listen,
    /// Number of notifications that the server has received and does not know.
    #[arg(skip)]
    heard: AtomicUsize,
}

/// Where a call over HTTP is answered.
#[derive(Clone, Copy, ValueEnum)]
enum Place {
    /// On the stream of its POST, with status 200
    Post,
    /// On the session's GET stream; the POST gets 202
    Get,
    /// On the stream of its POST, with status 202
    Accepted,
}

impl Server for Odd {
    fn identity(&self) -> (&'static str, &'static str) {
        ("odd", "1.0.0")
    }

    fn listen(&self) -> Listen {
        self.listen
    }

    fn library(&self) -> Library {
        Library::Odd(match self.answers {
            Place::Post => Answers::OnPost,
            Place::Get => Answers::OnGet,
            Place::Accepted => Answers::Accepted,
        })
    }

    fn tools(&self) -> &'static [Tool] {
        const fn tool(name: &'static str, description: &'static str) -> Tool {
            Tool { name, description, arguments: &[] }
        }
        const TOOLS: &[Tool] = &[
            tool("steps", "Reports five steps as the specification has it"),
            tool("nulls", "Answers with members that are null"),
            tool("totals", "Reports totals of zero, below zero and below the value"),
            tool("burst", "Reports six times within 100 ms, then answers"),
            tool("surrogates", "Reports and answers with half of a surrogate pair"),
            tool("glued", "Writes two messages on one line"),
            tool("latin1", "Reports in another encoding than UTF-8"),
            tool("start", "Starts a job, answers with its name, and reports on the job"),
            tool("wait", "Says nothing, then answers"),
            tool("heard", "Tells how many unknown notifications have arrived"),
        ];
        TOOLS
    }

    fn call(&self, call: &Call) -> Result<(), Cancelled> {
        match call.tool.as_str() {
            "steps" => self.steps(call, |step| {
                format!(r#""progress":{step},"total":5,"message":"step {step}""#)
            })?,
            "totals" => self.steps(call, |step| {
                let total = ["0", "-1", "1", "100", "0"][step - 1];
                format!(r#""progress":{step},"total":{total},"message":"step {step}""#)
            })?,
            "nulls" => {
                call.wait(self.pace)?;
                let (id, result) = (&call.id, support::text_result("nulls", false));
                call.client.say(vec![Said::answer(format_args!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":null,"params":null,"result":{result},"error":null}}"#
                ))]);
                return Ok(());
            }
            "burst" => {
                call.wait(Duration::from_millis(600))?;
                for step in 1..=6 {
                    report(
                        call,
                        &format!(r#""progress":{step},"total":6,"message":"line {step}""#),
                    );
                    call.wait(Duration::from_millis(15))?;
                }
                call.wait(Duration::from_millis(100))?;
            }
            "surrogates" => {
                self.steps(call, |step| {
                    format!(r#""progress":{step},"total":5,"message":"step {step} \ud83d""#)
                })?;
                let id = &call.id;
                call.client.say(vec![Said::answer(format_args!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"half \ud83d"}}],"isError":false}}}}"#
                ))]);
                return Ok(());
            }
            "glued" => glued(call, self.pace)?,
            "latin1" => latin1(call, self.pace)?,
            "start" => return start(call, self.pace),
            "wait" => call.wait(self.pace * 6)?,
            "heard" => {
                // What was sent before the call may still be on another connection.
                call.wait(Duration::from_millis(300))?;
                call.answer(&format!("heard {}", self.heard.load(Ordering::Relaxed)));
                return Ok(());
            }
            _ => {
                call.unknown_tool();
                return Ok(());
            }
        }
        call.answer("done");
        Ok(())
    }

    fn initialized(&self, client: &Client) {
        self.puzzled(client, None, "notifications/initialized");
    }

    fn puzzled(&self, client: &Client, id: Option<&Value>, method: &str) {
        match id {
            Some(id) => client.refuse(id, -32601, &format!("Method not found: {method}")),
            None => {
                if method != "notifications/initialized" {
                    self.heard.fetch_add(1, Ordering::Relaxed);
                }
                if self.grumble {
                    client.refuse(&Value::Null, -32601, &format!("Method not found: {method}"));
                }
            }
        }
    }
}

impl Odd {
    /// Reports five times with these members.
    fn steps(&self, call: &Call, members: impl Fn(usize) -> String) -> Result<(), Cancelled> {
        for step in 1..=5 {
            call.wait(self.pace)?;
            report(call, &members(step));
        }
        call.wait(self.pace)
    }
}

/// Reports on a call whose client wants progress.
fn report(call: &Call, members: &str) {
    if let Some(token) = &call.token {
        call.notify(notification(token, members));
    }
}

fn notification(token: &Value, members: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{members}}}}}"#
    )
}

/// Answers at once with the name of a job. The reports on the job come later, under that name.
fn start(call: &Call, pace: Duration) -> Result<(), Cancelled> {
    let job = format!("render-{}", call.id);
    call.answer(&format!(r#"{{"jobId":"{job}"}}"#));
    let call = call.clone();
    thread::spawn(move || {
        for step in 1..=4 {
            thread::sleep(pace);
            let members = format!(r#""progress":{step},"total":4,"message":"frame {step}""#);
            call.aside(notification(&Value::from(job.as_str()), &members));
        }
    });
    Ok(())
}

/// Two reports on one line, then two line ends.
fn glued(call: &Call, pace: Duration) -> Result<(), Cancelled> {
    let line: Vec<_> = (1..=2)
        .filter_map(|step| {
            let token = call.token.as_ref()?;
            Some(notification(
                token,
                &format!(r#""progress":{step},"total":5,"message":"step {step}""#),
            ))
        })
        .collect();
    call.wait(pace)?;
    call.client.print(line.concat() + "\n\n");
    call.wait(pace)?;
    Ok(())
}

/// Reports whose words are Latin-1 bytes.
fn latin1(call: &Call, pace: Duration) -> Result<(), Cancelled> {
    for step in 1..=5 {
        call.wait(pace)?;
        if let Some(token) = &call.token {
            let line = notification(
                token,
                &format!(r#""progress":{step},"total":5,"message":"gr@n {step}""#),
            );
            let bytes = line.bytes().map(|byte| if byte == b'@' { 0xfc } else { byte });
            call.client.print(bytes.chain([b'\n']).collect::<Vec<_>>());
        }
    }
    call.wait(pace)?;
    Ok(())
}

fn main() {
    support::serve(Odd::parse());
}
