//! `milepost demo`: a legacy server, the proxy and a client in one process, and a view of their
//! messages.
//!
//! Nothing is simulated: the proxy is the proxy of `milepost wrap`, the client checks its messages,
//! and the table counts the messages on the streams.

mod client;
mod pipes;
mod rows;
mod tally;
mod view;

use std::fmt;
use std::future::pending;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use client::{ClientEvent, DemoClient, Progress};
use pipes::{PipeEvent, Pipes};
use rows::{CallFate, DemoRow, Rows};
use thiserror::Error;
use tokio::signal::ctrl_c;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use view::{Tone, ViewLine};

use crate::progress::{FilterEvent, Policy, Verdict};

pub use client::MessageFault;
pub use tally::DemoTally;
pub use view::DemoView;

/// The time between two calls, for reading the result of the last call.
const PAUSE: Duration = Duration::from_millis(600);

/// A tool may take this time in addition to its silence.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interval at which the bars move even if no message arrives.
const TICK: Duration = Duration::from_millis(100);

/// The exit code of a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

/// One call, and the description of its tool.
struct Scene {
    tool: &'static str,
    speaks: &'static str,
}

/// The scenes run one after the other: an invented token can only be attributed while a single call is active.
const SCENES: [Scene; 3] = [
    Scene {
        tool: "pagerank",
        speaks: "tools/progress instead of MCP's method, the request's id instead of the token, \
                 figures in JSON in a string",
    },
    Scene {
        tool: "index_files",
        speaks: "invented tokens, null totals, figures that repeat and fall",
    },
    Scene { tool: "quarterly_report", speaks: "nothing until it answers" },
];

/// The reason why the demonstration failed.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The view could not be written.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
    /// The client received an invalid message.
    #[error("the client got a message that it cannot use ({}): {line}", fault.text())]
    Invalid {
        /// The fault of the message.
        fault: MessageFault,
        /// The message.
        line: String,
    },
    /// A call was not answered, or was answered with an error.
    #[error("the call of {0} got no result")]
    Unanswered(&'static str),
    /// The client's count differs from the proxy's.
    #[error("{tool}: the client got {got} notifications, the proxy counts {sent} as sent")]
    Miscounted {
        /// The tool.
        tool: &'static str,
        /// The number of notifications that the client counted.
        got: u64,
        /// The number of notifications that the proxy counted.
        sent: u64,
    },
    /// Some lines have no decision of the proxy, or some decisions no line.
    #[error("the client got other lines than the proxy decided")]
    Unsettled,
}

/// Runs the demonstration on standard output. Returns the exit code. The silent tool is silent for `silence`.
pub async fn run(silence: Duration) -> Result<u8, DemoError> {
    let mut view = DemoView::of_stdout();
    let ended = tokio::select! {
        ended = play(Policy::default(), silence, &mut view) => ended,
        Ok(()) = ctrl_c() => {
            view.clear()?;
            return Ok(INTERRUPTED);
        }
    };
    match ended {
        Ok(_) => Ok(0),
        // A closed pipe (`milepost demo | head`) is not an error.
        Err(DemoError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => {
            let _ = view.clear();
            Err(error)
        }
    }
}

/// Runs the demonstration and returns the result of each call.
pub async fn play(
    policy: Policy,
    silence: Duration,
    view: &mut DemoView<'_>,
) -> Result<Vec<DemoTally>, DemoError> {
    introduce(view)?;
    let mut client = DemoClient::default();
    let mut bare = DemoClient::default();
    let mut pipes = Pipes::connect(policy, silence);
    pipes.send(&client.initialize()).await;
    bare.initialize();
    let mut show = Show {
        view,
        silence,
        client,
        bare,
        pipes,
        rows: Rows::default(),
        phase: Phase::Greeting,
        began: Instant::now(),
        proxy_sent: 0,
        tallies: Vec::new(),
    };
    show.run().await?;
    show.view.clear()?;
    tally::show(&show.tallies, show.view)?;
    Ok(show.tallies)
}

fn introduce(view: &mut DemoView<'_>) -> io::Result<()> {
    let intro = "A legacy MCP server, Milepost in front of it, and a client that asks for progress. \
                 All three are in this process; nothing is played back.";
    view.words(Tone::Plain, intro, 0)?;
    view.words(Tone::Plain, "  ~ repaired   + added   x withheld   = as the server sent it", 2)
}

/// The phase of the demonstration.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// `initialize` is not answered yet.
    Greeting,
    /// A call is not answered yet. Holds the deadline for the answer, if there is one.
    Calling(Option<Instant>),
    /// No call is open. Holds the time at which the next call begins.
    Pausing(Instant),
    /// The client has closed its output.
    Leaving,
}

struct Show<'a, 'b> {
    view: &'a mut DemoView<'b>,
    silence: Duration,
    client: DemoClient,
    /// Reads the server's original lines, as a client without a proxy would.
    bare: DemoClient,
    pipes: Pipes,
    rows: Rows,
    phase: Phase,
    /// The time when the last call began.
    began: Instant,
    /// The number of notifications that the proxy sent for the call that ended last.
    proxy_sent: u64,
    /// The counts for each call; the last entry belongs to the current call.
    tallies: Vec<DemoTally>,
}

impl Show<'_, '_> {
    async fn run(&mut self) -> Result<(), DemoError> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let phase = self.phase;
            tokio::select! {
                event = self.pipes.events.recv() => match event {
                    Some(event) => self.see(event).await?,
                    None => break,
                },
                () = due(phase) => self.begin_phase().await?,
                _ = ticks.tick(), if self.view.is_live() => self.view.tick(),
            }
        }
        match self.phase {
            Phase::Leaving if self.rows.is_settled() => Ok(()),
            Phase::Leaving => Err(DemoError::Unsettled),
            _ => Err(DemoError::Unanswered(self.tool())),
        }
    }

    /// Returns the tool of the current call.
    fn tool(&self) -> &'static str {
        self.tallies.last().map_or("initialize", |tally| tally.tool)
    }

    /// Handles the beginning of a phase.
    async fn begin_phase(&mut self) -> Result<(), DemoError> {
        if let Phase::Calling(_) = self.phase {
            return Err(DemoError::Unanswered(self.tool()));
        }
        if let Some(tally) = self.tallies.last() {
            let without = tally.without();
            self.view.words(Tone::Plain, &without, 2)?;
        }
        match SCENES.get(self.tallies.len()) {
            Some(scene) => self.call(scene).await?,
            None => {
                self.phase = Phase::Leaving;
                self.pipes.close().await;
            }
        }
        Ok(())
    }

    async fn call(&mut self, scene: &Scene) -> Result<(), DemoError> {
        self.view.line(&[])?;
        self.view.words(Tone::Strong, &format!("{}: {}", scene.tool, scene.speaks), 2)?;
        self.view.columns()?;
        self.view.begin(scene.tool);
        self.tallies.push(DemoTally::new(scene.tool));
        self.began = Instant::now();
        let enough = self.silence.checked_add(PATIENCE);
        self.phase = Phase::Calling(enough.and_then(|enough| self.began.checked_add(enough)));
        self.bare.call(scene.tool);
        let request = self.client.call(scene.tool);
        self.pipes.send(&request).await;
        Ok(())
    }

    async fn see(&mut self, event: PipeEvent) -> Result<(), DemoError> {
        match event {
            PipeEvent::Sent(line) => {
                self.count_without(&line);
                self.rows.sent(line);
            }
            PipeEvent::Decided(record) => {
                if let FilterEvent::Call(summary) = &record {
                    self.proxy_sent = summary.account.sent;
                }
                self.rows.decided(&record);
            }
            PipeEvent::Got(line) => self.rows.got(line),
        }
        while let Some(row) = self.rows.next() {
            self.take(&row).await?;
        }
        Ok(())
    }

    /// Counts a server message as a client without a proxy would understand it.
    fn count_without(&mut self, line: &Bytes) {
        let event = self.bare.receive(line);
        let Some(tally) = self.tallies.last_mut() else { return };
        match event {
            ClientEvent::Answer { .. } => return,
            ClientEvent::Progress(_) => tally.usable += 1,
            ClientEvent::Refused(fault) => *tally.faults.entry(fault).or_default() += 1,
        }
        tally.sent += 1;
    }

    /// Counts one row: the server's message, if the row has one, and the client's message.
    async fn take(&mut self, row: &DemoRow) -> Result<(), DemoError> {
        let event = row.got.as_ref().map(|line| self.client.receive(line));
        if let Some(ClientEvent::Refused(fault)) = event {
            let line = row.got.as_ref().map(|line| String::from_utf8_lossy(line).trim().to_owned());
            return Err(DemoError::Invalid { fault, line: line.unwrap_or_default() });
        }
        match event {
            Some(ClientEvent::Answer { ok: true }) => return self.answered(row).await,
            Some(ClientEvent::Answer { ok: false }) => {
                return Err(DemoError::Unanswered(self.tool()));
            }
            _ => {}
        }
        let Some(tally) = self.tallies.last_mut() else { return Ok(()) };
        tally.count(row.fate);
        let (mark, tone) = match row.fate {
            CallFate::Added => ('+', Tone::Added),
            CallFate::Verdict(Verdict::Repaired(_)) => ('~', Tone::Repaired),
            CallFate::Verdict(Verdict::Forwarded) => ('=', Tone::Plain),
            CallFate::Verdict(Verdict::Withheld(_)) => ('x', Tone::Withheld),
        };
        let right = match (&event, row.fate) {
            (Some(ClientEvent::Progress(told)), _) => {
                self.view.progress(told);
                told.to_string()
            }
            (_, CallFate::Verdict(Verdict::Withheld(reason))) => {
                format!("withheld: {}", reason.name())
            }
            _ => String::new(),
        };
        Ok(self.show(row, mark, right, tone)?)
    }

    async fn answered(&mut self, row: &DemoRow) -> Result<(), DemoError> {
        let now = Instant::now();
        let Some(tally) = self.tallies.last_mut() else {
            self.pipes.send(DemoClient::INITIALIZED).await;
            self.phase = Phase::Pausing(now);
            return Ok(());
        };
        tally.took = now - self.began;
        let (tool, got, sent) = (tally.tool, tally.got, self.proxy_sent);
        if got != sent {
            return Err(DemoError::Miscounted { tool, got, sent });
        }
        let right = format!("answered after {:.1} s", tally.took.as_secs_f64());
        self.view.end(tally.took);
        let repaired = matches!(row.fate, CallFate::Verdict(Verdict::Repaired(_)));
        self.show(row, if repaired { '~' } else { '=' }, right, Tone::Strong)?;
        self.phase = Phase::Pausing(now + PAUSE);
        Ok(())
    }

    fn show(&mut self, row: &DemoRow, mark: char, right: String, tone: Tone) -> io::Result<()> {
        let left = row.sent.as_ref().map(view::main_part).unwrap_or_default();
        let at = row.at.saturating_duration_since(self.began);
        self.view.message(&ViewLine { at, left, mark, right, tone })
    }
}

async fn due(phase: Phase) {
    match phase {
        Phase::Calling(Some(at)) | Phase::Pausing(at) => sleep_until(at).await,
        Phase::Greeting | Phase::Calling(None) | Phase::Leaving => pending().await,
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = match &self.total {
            Some(total) => format!("{}/{total}", self.figure),
            None => self.figure.clone(),
        };
        write!(f, "{figure:8} {}", self.message)
    }
}
