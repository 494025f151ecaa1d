//! `milepost try`: calls tools of a server behind the proxy and shows both sides, what the server sends and what the
//! client gets, for users without a client.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::DoctorError;
use super::call::{CallPlan, GivenToken};
use super::client::DoctorClient;
use super::findings::shown;
use super::line_editor::LineEditor;
use super::link::Link;
use super::trouble::Trouble;
use crate::config::routes::WrappedServer;
use crate::lab::color::Palette;
use crate::lab::sides::{ADDED, SideRow, side_line};
use crate::observe::events::{
    EventKind, FilterId, Observer, ObserverEvent, ObserverFactory, Scope,
};
use crate::observe::transcript::words::verdict_text;
use crate::progress::input::Input;
use crate::progress::{FilterEvent, Policy, Verdict};
use crate::protocol::mcp::Revision;
use crate::transport::child::Program;

/// The name that the client gives itself.
const NAME: &str = "milepost-try";

/// Maximum number of messages that wait to be shown. Further messages are left out.
const WAITING_MAX: usize = 4096;

/// The time to wait for messages after an answer.
const AFTER: Duration = Duration::from_millis(300);

/// A server, and the calls to make.
#[derive(Debug)]
pub struct Playground {
    /// The settings of the proxy in front of the server.
    pub policy: Policy,
    /// The server.
    pub server: WrappedServer,
    /// The tool to call, and its arguments; `None` if the user is asked.
    pub call: Option<(String, Map<String, Value>)>,
    /// Deadline for an answer.
    pub timeout: Duration,
    /// The colours of the output.
    pub colors: Palette,
    /// Whether a user can be asked for calls.
    pub is_asked: bool,
}

/// Calls the tool, or the tools that the user types, and shows both sides on `out`. Returns whether every call was
/// answered. Finally ends the server with all its descendants.
///
/// # Errors
/// If the server cannot be used, or the output cannot be written.
pub async fn run(playground: Playground, out: &mut dyn Write) -> Result<bool, PlaygroundError> {
    let (watch, seen) = BothSides::new();
    let observers: [Arc<dyn ObserverFactory>; 1] = [Arc::new(watch)];
    let Playground { policy, server, call, timeout, colors, is_asked } = playground;
    let link = match server {
        WrappedServer::Command(stdio) => {
            let (command, env, cwd) = (stdio.command, stdio.env, stdio.cwd);
            let program = Program { command, env, cwd, ..Program::default() };
            Link::start_proxied(policy, &program, &observers).map_err(DoctorError::from)?
        }
        WrappedServer::Http { route, bearer_file } => {
            Link::start_remote(policy, &route, bearer_file, &observers)?
        }
    };
    let mut game = Game {
        client: DoctorClient::new(link, NAME, timeout),
        seen,
        is_asked,
        colors,
        began: Instant::now(),
        tools: Vec::new(),
    };
    let played = game.play(call, out).await;
    game.client.close().await;
    played
}

/// The reason why nothing can be tried.
#[derive(Debug, thiserror::Error)]
pub enum PlaygroundError {
    /// The server cannot be used.
    #[error(transparent)]
    Server(#[from] DoctorError),
    /// The output cannot be written.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// One session with the server.
struct Game {
    client: DoctorClient,
    seen: mpsc::Receiver<SideMessage>,
    is_asked: bool,
    colors: Palette,
    began: Instant,
    tools: Vec<String>,
}

impl Game {
    async fn play(
        &mut self,
        call: Option<(String, Map<String, Value>)>,
        out: &mut dyn Write,
    ) -> Result<bool, PlaygroundError> {
        let wrong = |trouble: Trouble| DoctorError::Server(trouble.to_string());
        self.client.initialize(Revision::V2025_11_25.date()).await.map_err(wrong)?;
        self.tools = self.client.tools().await.map_err(wrong)?;
        // Skip the messages of the session's beginning.
        while self.seen.try_recv().is_ok() {}
        let names = shown(self.tools.join(", ").as_bytes());
        writeln!(out, "{} {names}", self.colors.heading("Tools:"))?;
        if let Some((tool, arguments)) = call {
            self.client.required.check(&tool, &arguments)?;
            return self.call(tool, arguments, out).await;
        }
        if !self.is_asked {
            writeln!(out, "`--call NAME --args JSON` calls one; in a terminal you are asked.")?;
            return Ok(true);
        }
        let mut typed = LineEditor::default();
        let mut is_answered = true;
        while let Some((tool, arguments)) = ask(&self.tools, &mut typed, out).await? {
            is_answered &= self.call(tool, arguments, out).await?;
        }
        Ok(is_answered)
    }

    /// Makes one call and shows the messages as they arrive. Returns whether it was answered.
    async fn call(
        &mut self,
        tool: String,
        arguments: Map<String, Value>,
        out: &mut dyn Write,
    ) -> Result<bool, PlaygroundError> {
        if !self.tools.contains(&tool) {
            return Err(super::no_tool(&tool, &self.tools).into());
        }
        let plan = CallPlan { tool, arguments, at_once: 1, given: GivenToken::InMeta };
        self.began = Instant::now();
        let (began, colors) = (self.began, self.colors);
        let calling = self.client.call(&plan, AFTER);
        let mut calling = std::pin::pin!(calling);
        let done = loop {
            tokio::select! {
                biased;
                Some(message) = self.seen.recv() => message.show(began, colors, out)?,
                done = &mut calling => break done,
            }
        };
        while let Ok(message) = self.seen.try_recv() {
            message.show(began, colors, out)?;
        }
        if let Err(trouble) = &done {
            writeln!(out, "{}", colors.bad(&format!("no answer: {trouble}")))?;
        }
        Ok(done.is_ok())
    }
}

/// The lines that the user types.
trait TypedLines {
    /// Reads the next line, whose first word may be completed from `words`; `None` at the end of the input.
    async fn line(&mut self, prompt: &str, words: &[String]) -> io::Result<Option<String>>;
}

impl TypedLines for LineEditor {
    async fn line(&mut self, prompt: &str, words: &[String]) -> io::Result<Option<String>> {
        self.ask(prompt, words).await
    }
}

/// Asks for one of these tools and its arguments; `None` at the end of the input or for an empty line. An input that is
/// not understood is asked again. A line may contain both: `NAME JSON`.
async fn ask(
    tools: &[String],
    typed: &mut impl TypedLines,
    out: &mut dyn Write,
) -> Result<Option<(String, Map<String, Value>)>, io::Error> {
    loop {
        writeln!(out)?;
        out.flush()?;
        let prompt = "Tool, and its arguments as JSON if it has any (empty: end): ";
        let Some(line) = typed.line(prompt, tools).await? else { return Ok(None) };
        let line = line.trim();
        if line.is_empty() {
            return Ok(None);
        }
        let (tool, text) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if !tools.iter().any(|known| known == tool) {
            writeln!(out, "{}", super::no_tool(tool, tools))?;
            continue;
        }
        let mut text = text.trim().to_owned();
        if text.is_empty() {
            out.flush()?;
            let line = typed.line("Arguments as JSON [{}]: ", &[]).await?;
            let Some(line) = line else { return Ok(None) };
            line.trim().clone_into(&mut text);
        }
        match serde_json::from_str(if text.is_empty() { "{}" } else { &text }) {
            Ok(arguments) => return Ok(Some((tool.to_owned(), arguments))),
            Err(error) => {
                writeln!(out, "an object such as {{\"path\":\"src\"}} is expected: {error}")?
            }
        }
    }
}

/// A message of one side, or the decision about a message.
struct SideMessage {
    at: Instant,
    kind: SideKind,
}

enum SideKind {
    /// The server has sent this message.
    Server(bytes::Bytes),
    /// The client gets this message.
    Client(bytes::Bytes),
    /// The proxy did something else with a message of the server than forward it.
    Decided(Verdict),
    /// The proxy has added the last message that the client got.
    Added,
}

impl SideMessage {
    fn show(&self, began: Instant, colors: Palette, out: &mut dyn Write) -> io::Result<()> {
        let (row, text) = match &self.kind {
            SideKind::Server(text) => (SideRow::Sent, shown(text)),
            SideKind::Client(text) => (SideRow::Got, shown(text)),
            SideKind::Decided(verdict) => (SideRow::Remark, verdict_text(*verdict)),
            SideKind::Added => (SideRow::Remark, ADDED.to_owned()),
        };
        let line = side_line(self.at.saturating_duration_since(began), row, &text, colors);
        writeln!(out, "{line}")
    }
}

/// Observes both sides of the proxy.
#[derive(Debug)]
struct BothSides {
    messages: mpsc::Sender<SideMessage>,
}

impl BothSides {
    fn new() -> (Self, mpsc::Receiver<SideMessage>) {
        let (to, seen) = mpsc::channel(WAITING_MAX);
        (Self { messages: to }, seen)
    }
}

impl ObserverFactory for BothSides {
    fn begin(&self, _: FilterId, _: &str, _: Scope, _: &Arc<Policy>) -> Option<Box<dyn Observer>> {
        Some(Box::new(SideObserver { messages: self.messages.clone() }))
    }
}

#[derive(Debug)]
struct SideObserver {
    messages: mpsc::Sender<SideMessage>,
}

impl Observer for SideObserver {
    fn on_event(&mut self, event: &ObserverEvent) {
        let kind = match &event.kind {
            EventKind::Input(Input::ServerMessage(_, message), _) => {
                SideKind::Server(message.raw().clone())
            }
            EventKind::Input(Input::ServerProgress(_, text), _) => SideKind::Server(text.clone()),
            EventKind::ToClient(_, text) => SideKind::Client(text.clone()),
            EventKind::Decided(FilterEvent::Message { verdict, .. })
                if *verdict != Verdict::Forwarded =>
            {
                SideKind::Decided(*verdict)
            }
            EventKind::Decided(FilterEvent::Heartbeat(_)) => SideKind::Added,
            _ => return,
        };
        // Ignore the error: if the display is too slow, it misses messages.
        let _ = self.messages.try_send(SideMessage { at: event.at, kind });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script {
        lines: Vec<&'static str>,
    }

    impl TypedLines for Script {
        async fn line(&mut self, _: &str, _: &[String]) -> io::Result<Option<String>> {
            Ok((!self.lines.is_empty()).then(|| self.lines.remove(0).to_owned()))
        }
    }

    #[tokio::test]
    async fn a_slip_is_asked_again_and_a_line_may_hold_the_arguments() {
        let typed =
            "silnt\nreport {\"steps\":3}\nsilent\n\nreport\n[1]\nreport {\nreport\n{\"a\":1}\n";
        let mut typed = Script { lines: typed.lines().collect() };
        let tools = ["report".to_owned(), "silent".to_owned()];
        let (mut out, mut calls) = (Vec::new(), Vec::new());
        while let Some((tool, arguments)) = ask(&tools, &mut typed, &mut out).await.unwrap() {
            calls.push(format!("{tool} {}", Value::from(arguments)));
        }
        assert_eq!(calls, ["report {\"steps\":3}", "silent {}", "report {\"a\":1}"]);
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("did you mean \"silent\"?"), "{out}");
        assert_eq!(out.matches("an object such as").count(), 2, "{out}");
    }
}
