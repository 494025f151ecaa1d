//! A client that will not wait: it calls a tool over stdio and gives up when it hears nothing.
//!
//! The client does as the TypeScript SDK does with `resetTimeoutOnProgress`: each call has a timeout, which
//! starts anew with every valid progress notification for the call's own token. What a server does
//! wrong on the way it reports, as a `fault`: progress for a token that is not active, progress
//! without a proper figure, figures that do not rise, lines that are no messages, answers that are
//! no results.
//!
//! ```text
//! $ impatient_client --timeout 1s --call sleep --args '{"seconds":3}' -- target/debug/examples/silent
//!    0.003s  connected to silent 1.0.0
//!    1.004s  call 1  timed out: nothing heard for 1s
//! 0 of 1 calls got a result, 0 progress notifications, 0 faults
//! ```
//!
//! Its exit code is 0 if every call got its result, and 1 otherwise; with `--strict`, 1 as well if
//! there were faults.
//!
//! Run it with `cargo run --example impatient_client -- --timeout 1s --call pagerank --
//! target/debug/examples/kuzumem`, and with milepost in between, as `… -- milepost wrap --
//! target/debug/examples/kuzumem`.

#[path = "support/referee.rs"]
mod referee;
#[path = "support/text.rs"]
mod text;

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use referee::{Event, Referee};
use serde_json::{Value, json};

/// How long a server may take to say hello.
const HELLO: Duration = Duration::from_secs(10);

/// How long a server may take to leave when there is nothing more to do.
const GOODBYE: Duration = Duration::from_secs(2);

/// How long to listen on for what comes after the last answer.
const AFTERMATH: Duration = Duration::from_millis(200);

/// Calls a tool and gives up when it hears nothing.
#[derive(Parser)]
struct Client {
    /// How long a call may go without an answer or progress
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = text::duration)]
    timeout: Duration,
    /// How long a call may take, progress or not
    #[arg(long, value_name = "DURATION", value_parser = text::duration)]
    total_timeout: Option<Duration>,
    /// Do not ask for progress
    #[arg(long)]
    no_token: bool,
    /// The token: a text of one's own, or the request's id as the official SDKs do
    #[arg(long, value_enum, default_value_t = TokenAs::Text)]
    token_as: TokenAs,
    /// The tool to call
    #[arg(long, value_name = "TOOL")]
    call: String,
    /// Its arguments
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json_object)]
    args: Value,
    /// How many times to call it, all at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    calls: u64,
    /// Let faults count as failure
    #[arg(long)]
    strict: bool,
    /// The server's command line
    #[arg(last = true, required = true, value_name = "COMMAND")]
    server: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TokenAs {
    Text,
    Id,
}

fn json_object(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if value.is_object() { Ok(value) } else { Err("the arguments are a JSON object".to_owned()) }
}

/// The server's process, and time since it began.
struct Session {
    child: Child,
    to_server: Option<ChildStdin>,
    from_server: Receiver<Vec<u8>>,
    began: Instant,
}

impl Session {
    fn start(command: &[String]) -> std::io::Result<Self> {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to_server = child.stdin.take();
        let stdout = child.stdout.take().expect("it is piped");
        let from_server = listen(stdout);
        Ok(Self { child, to_server, from_server, began: Instant::now() })
    }

    /// Sends a message. That the server has gone shows when it is listened to.
    fn send(&mut self, message: &Value) {
        if let Some(stdin) = &mut self.to_server {
            let _ = stdin.write_all(format!("{message}\n").as_bytes());
        }
    }

    fn receive(&self, until: Instant) -> Result<Vec<u8>, RecvTimeoutError> {
        self.from_server.recv_timeout(until.saturating_duration_since(Instant::now()))
    }

    fn log(&self, text: impl Display) {
        print(format_args!("{:8.3}s  {text}", self.began.elapsed().as_secs_f64()));
    }

    /// `initialize`, its answer, and that it was understood.
    fn shake_hands(&mut self, referee: &mut Referee) -> Option<()> {
        self.send(&json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": { "name": "impatient_client", "version": "1.0.0" },
            },
        }));
        let until = self.began + HELLO;
        loop {
            let line = self.receive(until).ok()?;
            match referee.judge(&line) {
                Event::Answer { id: 0, outcome: Ok(result), .. } => {
                    let text = |key: &str| result["serverInfo"][key].as_str().unwrap_or("?");
                    self.log(format_args!("connected to {} {}", text("name"), text("version")));
                    break;
                }
                event => self.tell(event),
            }
        }
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        Some(())
    }

    /// Says what a line of the server's meant.
    fn tell(&mut self, event: Event) {
        match event {
            Event::Progress { id, text } => self.log(format_args!("call {id}  progress  {text}")),
            Event::Answer { id, misnamed, outcome } => {
                if misnamed {
                    self.log(format_args!("fault  an answer to \"{id}\" where {id} was asked"));
                }
                match outcome {
                    Ok(result) => {
                        let text = result["content"][0]["text"].as_str().unwrap_or_default();
                        let start: String = text.chars().take(60).collect();
                        self.log(format_args!("call {id}  result  {start:?}"));
                    }
                    Err(error) => self.log(format_args!("call {id}  error  {error}")),
                }
            }
            Event::Fault(fault) => self.log(format_args!("fault  {fault}")),
            Event::Asked(answer) => self.send(&answer),
            Event::Aside => {}
        }
    }

    /// Hears the server out, and sees it to the door.
    fn end(mut self, referee: &mut Referee) {
        let mut until = Instant::now() + AFTERMATH;
        loop {
            match self.receive(until) {
                Ok(line) => {
                    let event = referee.judge(&line);
                    self.tell(event);
                }
                // After the aftermath, stdin closes; the server has its own farewells to write.
                Err(RecvTimeoutError::Timeout) if self.to_server.take().is_some() => {
                    until = Instant::now() + GOODBYE;
                }
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(stdout: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
        lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
    });
    receiver
}

impl Client {
    fn token(&self, id: u64) -> Option<Value> {
        match self.token_as {
            _ if self.no_token => None,
            TokenAs::Id => Some(json!(id)),
            TokenAs::Text => Some(json!(format!("impatient-{id}"))),
        }
    }

    fn place_calls(&self, session: &mut Session, referee: &mut Referee) {
        for id in 1..=self.calls {
            let token = self.token(id);
            let mut params = json!({ "name": self.call, "arguments": self.args });
            if let Some(token) = &token {
                params["_meta"] = json!({ "progressToken": token });
            }
            referee.expect(id, token);
            session.send(
                &json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }),
            );
        }
    }

    /// Listens until every call is answered or given up.
    fn wait(&self, session: &mut Session, referee: &mut Referee) {
        let began = Instant::now();
        while let Some((id, heard)) = referee.longest_silent() {
            let silent = (heard + self.timeout, "nothing heard for", self.timeout);
            let total = self.total_timeout.map(|total| (began + total, "no answer within", total));
            let (deadline, reason, limit) = total.map_or(silent, |total| total.min(silent));
            match session.receive(deadline) {
                Ok(line) => {
                    let event = referee.judge(&line);
                    session.tell(event);
                }
                Err(RecvTimeoutError::Timeout) => {
                    referee.give_up(id);
                    let reason = format!("{reason} {limit:?}");
                    session.log(format_args!("call {id}  timed out: {reason}"));
                    session.send(&json!({
                        "jsonrpc": "2.0", "method": "notifications/cancelled",
                        "params": { "requestId": id, "reason": reason },
                    }));
                }
                Err(RecvTimeoutError::Disconnected) => return session.log("the server has gone"),
            }
        }
    }
}

/// Prints a line. Without anybody to read it there is no need to.
fn print(line: impl Display) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn main() -> ExitCode {
    let client = Client::parse();
    let mut session = match Session::start(&client.server) {
        Ok(session) => session,
        Err(error) => {
            print(format_args!("cannot run {}: {error}", client.server[0]));
            return ExitCode::FAILURE;
        }
    };
    let mut referee = Referee::default();
    referee.expect(0, None);
    if session.shake_hands(&mut referee).is_some() {
        client.place_calls(&mut session, &mut referee);
        client.wait(&mut session, &mut referee);
    } else {
        session.log("the server did not answer initialize");
    }
    session.end(&mut referee);
    let (results, progress, faults) = (referee.results, referee.progress, referee.faults);
    let calls = client.calls;
    print(format_args!(
        "{results} of {calls} calls got a result, {progress} progress notifications, {faults} faults"
    ));
    let success = results == calls && !(client.strict && faults > 0);
    if success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
