//! The acts: the steps of the reference client in each session through the proxy.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use super::process::{ListeningProxy, free_port};
use super::{ProxyTemplate, ProxyTerms};
use crate::config::routes::{HttpUpstream, Route, Upstream};
use crate::lab::check_progress::scenarios::Scenario;
use crate::lab::check_progress::shell;
use crate::lab::doctor::client::DoctorClient;
use crate::lab::doctor::link::Link;
use crate::lab::doctor::traffic::{TrafficEntry, TransportKind};
use crate::lab::doctor::trouble::Trouble;
use crate::lab::doctor::{DoctorError, web_link};
use crate::lab::reference::seen::SeenFacts;
use crate::protocol::mcp::{CANCELLED, Revision, TOOLS_CALL};

/// The name that the reference client gives itself.
const CLIENT: &str = "milepost-check-progress";

/// Number of quick calls that are made one after the other.
const QUICK_CALLS: u32 = 40;

/// The time to wait for messages after an answer.
const AFTER: Duration = Duration::from_millis(500);

/// Deadline for a cancellation to reach the server.
const CANCEL_WAIT: Duration = Duration::from_secs(3);

/// The interval at which the notes of the server are read.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Deadline for the answer to an interrupted response, unless the deadline for all answers is shorter. The rest of the
/// script takes only a second.
const RESUME_WAIT: Duration = Duration::from_secs(15);

/// A session through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxyAct {
    /// Two simultaneous calls, then a call without a token at the same time as a quick call, then more quick calls.
    Calls,
    /// A call that is cancelled.
    Cancel,
    /// A call during which the server pings.
    Ping,
    /// A call whose progress rises in small steps with the same message.
    Heartbeat,
    /// A call whose response the server ends early.
    Polling,
    /// A call whose response the client interrupts.
    Resume,
    /// Two long calls: one with progress, one silent.
    Long,
}

impl ProxyAct {
    pub(super) const ALL: [Self; 7] = [
        Self::Calls,
        Self::Cancel,
        Self::Ping,
        Self::Heartbeat,
        Self::Polling,
        Self::Resume,
        Self::Long,
    ];

    /// Whether a scenario is judged by the act.
    fn shows(self, scenario: Scenario) -> bool {
        match scenario {
            Scenario::ProxyCancel => self == Self::Cancel,
            Scenario::ProxyPing => self == Self::Ping,
            Scenario::ProxyHeartbeat => self == Self::Heartbeat,
            Scenario::ProxyPolling => self == Self::Polling,
            Scenario::ProxyResume => self == Self::Resume,
            Scenario::ProxyLong => self == Self::Long,
            _ => self == Self::Calls,
        }
    }

    /// Whether the act is wanted, and can be played with these transports and options.
    pub(super) fn is_for(
        self,
        only: &[Scenario],
        terms: &ProxyTerms,
        template: &ProxyTemplate,
    ) -> bool {
        if !only.iter().any(|scenario| self.shows(*scenario)) {
            return false;
        }
        match self {
            Self::Ping => !terms.is_modern(),
            Self::Polling => {
                template.back == TransportKind::Streamable
                    && terms.revision == Revision::V2025_11_25.date()
            }
            Self::Resume => template.front == TransportKind::Streamable && !terms.is_modern(),
            Self::Long => terms.long.is_some(),
            _ => true,
        }
    }
}

/// The messages and errors of an act.
pub(super) struct ActRecord {
    pub(super) act: ProxyAct,
    /// Whether the proxy has started, and listens if it has an address.
    pub(super) has_started: bool,
    pub(super) has_begun: bool,
    /// The names of the tools.
    pub(super) tools: Vec<String>,
    pub(super) entries: Vec<TrafficEntry>,
    /// The number of responses that the client has broken off.
    pub(super) broken_off: usize,
    pub(super) trouble: Option<String>,
}

/// One pair of transports: the terms, and the text for each placeholder.
pub(super) struct PairTerms<'a> {
    pub(super) terms: &'a ProxyTerms,
    pub(super) template: &'a ProxyTemplate,
    /// The file of the server's notes.
    pub(super) notes: &'a Path,
    pub(super) places: Vec<(&'static str, String)>,
}

/// Returns the script's steps as JSON: for each the wait in milliseconds, and the members of the progress.
pub(super) fn steps(all: &[(u64, Value)]) -> Value {
    let step = |(wait, progress): &(u64, Value)| {
        let mut step = progress.clone();
        step["wait"] = json!(wait);
        step
    };
    all.iter().map(step).collect()
}

/// Returns the progress of the call `a`: numbers that rounding would change, and texts beyond ASCII.
pub(super) fn first_progress() -> Vec<Value> {
    let values = [0.5, 1.0, 2.25, 4.0, 6.125];
    let one = |(at, value): (usize, f64)| json!({ "progress": value, "total": 8, "message": format!("läuft: {} → 5", at + 1) });
    values.into_iter().enumerate().map(one).collect()
}

/// Returns the progress of the call `b`: without a total, and partly without a message.
pub(super) fn second_progress() -> Vec<Value> {
    vec![
        json!({ "progress": 101 }),
        json!({ "progress": 102, "message": "second" }),
        json!({ "progress": 103 }),
        json!({ "progress": 104, "message": "fourth" }),
    ]
}

/// Returns the progress of the call `beat`.
pub(super) fn beats() -> Vec<Value> {
    (0..8)
        .map(|at| json!({ "progress": f64::from(at).mul_add(1e-6, 1.0), "message": "working" }))
        .collect()
}

fn paced(wait: u64, progress: Vec<Value>) -> Vec<(u64, Value)> {
    progress.into_iter().map(|one| (wait, one)).collect()
}

fn answer_after(wait: u64) -> (u64, Value) {
    (wait, json!({ "do": "answer" }))
}

impl PairTerms<'_> {
    /// Plays an act in a session of its own.
    pub(super) async fn play(&self, act: ProxyAct) -> Result<ActRecord, DoctorError> {
        let mut places: Vec<(&str, &str)> =
            self.places.iter().map(|(place, text)| (*place, text.as_str())).collect();
        let port = free_port()
            .map_err(|error| DoctorError::Server(format!("no port is free: {error}")))?
            .to_string();
        places.push(("{port}", &port));
        let program = shell::program(&shell::filled(&self.template.command, &places));
        let mut record = ActRecord {
            act,
            has_started: true,
            has_begun: false,
            tools: Vec::new(),
            entries: Vec::new(),
            broken_off: 0,
            trouble: None,
        };
        let Some(address) = &self.template.address else {
            let client = DoctorClient::new(Link::start(&program)?, CLIENT, self.terms.timeout);
            self.visit(client, &mut record).await;
            return Ok(record);
        };
        let url = Url::parse(&shell::filled(address, &places))?;
        let route = Route::new("/".to_owned(), Upstream::Http(HttpUpstream::new(url.clone())));
        let proxy = ListeningProxy::start(&program)?;
        match proxy.ready(&url, self.terms.timeout).await {
            Err(why) => {
                record.has_started = false;
                record.trouble = Some(why);
            }
            Ok(()) => match web_link(&route, self.template.front) {
                Ok(link) => {
                    let client = DoctorClient::new(link, CLIENT, self.terms.timeout);
                    self.visit(client, &mut record).await;
                }
                Err(error) => {
                    proxy.end().await;
                    return Err(error);
                }
            },
        }
        proxy.end().await;
        Ok(record)
    }

    async fn visit(&self, mut client: DoctorClient, record: &mut ActRecord) {
        let played = self.perform(&mut client, record).await;
        if !record.has_begun && matches!(played, Err(Trouble::Ended(_))) {
            record.has_started = false;
        }
        // The texts are written for servers; here the proxy is the server of the client.
        let words = |trouble: Trouble| trouble.to_string().replace("the server", "the proxy");
        record.trouble = played.err().map(words);
        record.entries = client.close().await;
    }

    async fn perform(
        &self,
        client: &mut DoctorClient,
        record: &mut ActRecord,
    ) -> Result<(), Trouble> {
        match self.terms.is_modern() {
            true => client.discover(self.terms.revision, self.terms.timeout).await?,
            false => client.initialize(self.terms.revision).await?,
        };
        record.tools = client.tools().await?;
        record.has_begun = true;
        match record.act {
            ProxyAct::Calls => self.calls(client).await,
            ProxyAct::Cancel => self.cancel(client).await,
            ProxyAct::Ping => {
                let script = [(300, json!({ "do": "ping" })), answer_after(0)];
                self.one_call(client, "ping", &script, self.terms.timeout).await
            }
            ProxyAct::Heartbeat => {
                let script = [paced(200, beats()), vec![answer_after(500)]].concat();
                self.one_call(client, "beat", &script, self.terms.timeout).await
            }
            ProxyAct::Polling => {
                let mut script = paced(300, (1..=4).map(|at| json!({ "progress": at })).collect());
                script.insert(2, (200, json!({ "do": "hang-up" })));
                script.push(answer_after(500));
                self.one_call(client, "polling", &script, RESUME_WAIT.min(self.terms.timeout)).await
            }
            ProxyAct::Resume => {
                let count = client.link.web().map(|web| web.break_off(2));
                let mut script = paced(300, (1..=5).map(|at| json!({ "progress": at })).collect());
                script.push(answer_after(500));
                let done = self
                    .one_call(client, "resume", &script, RESUME_WAIT.min(self.terms.timeout))
                    .await;
                record.broken_off = count.map_or(0, |count| count.load(Ordering::Relaxed));
                done
            }
            ProxyAct::Long => self.long_calls(client).await,
        }
    }

    /// Begins a call, and returns the id of its request.
    async fn begin(
        &self,
        client: &mut DoctorClient,
        key: &str,
        script: &[(u64, Value)],
        token: Option<Value>,
    ) -> Result<u64, Trouble> {
        let arguments = json!({ "key": key, "steps": steps(script) });
        let mut params = json!({ "name": "play", "arguments": arguments });
        if let Some(token) = token {
            params["_meta"] = json!({ "progressToken": token });
        }
        client.ask(TOOLS_CALL, params).await
    }

    async fn one_call(
        &self,
        client: &mut DoctorClient,
        key: &str,
        script: &[(u64, Value)],
        patience: Duration,
    ) -> Result<(), Trouble> {
        let id = self.begin(client, key, script, Some(json!(format!("token of {key}")))).await?;
        client.wait(&[id], patience).await?;
        client.drain(AFTER).await;
        Ok(())
    }

    async fn calls(&self, client: &mut DoctorClient) -> Result<(), Trouble> {
        let first = [paced(150, first_progress()), vec![answer_after(600)]].concat();
        let second = [paced(190, second_progress()), vec![answer_after(600)]].concat();
        let one = self.begin(client, "a", &first, Some(json!(7001))).await?;
        let other = self.begin(client, "b", &second, Some(json!("7002"))).await?;
        let came = client.wait(&[one, other], self.terms.timeout).await;
        client.drain(AFTER).await;
        came?;
        let short = [paced(100, first_progress()), vec![answer_after(0)]].concat();
        let bare = self.begin(client, "c", &short, None).await?;
        let mut quick = paced(10, (1..=3).map(|at| json!({ "progress": at })).collect());
        quick.push(answer_after(5));
        let hasty = self.begin(client, "d", &quick, Some(json!("quick"))).await?;
        client.wait(&[bare, hasty], self.terms.timeout).await?;
        client.drain(AFTER).await;
        // Whether a proxy swaps progress and answer is chance, so the call is repeated.
        for at in 1..=QUICK_CALLS {
            let token = json!(format!("quick {at}"));
            let again = self.begin(client, &format!("d{at}"), &quick, Some(token)).await?;
            client.wait(&[again], self.terms.timeout).await?;
        }
        client.drain(AFTER).await;
        Ok(())
    }

    async fn cancel(&self, client: &mut DoctorClient) -> Result<(), Trouble> {
        let script = paced(100, (1..=100).map(|at| json!({ "progress": at })).collect());
        let id = self.begin(client, "wait", &script, Some(json!(7005))).await?;
        // Wait until the server has the call: a proxy that starts a server for it may take long on a busy machine.
        let deadline = Instant::now() + self.terms.timeout;
        while Instant::now() < deadline && SeenFacts::read(self.notes).token("wait").is_none() {
            client.drain(LOOK_EVERY).await;
        }
        client.drain(Duration::from_millis(700)).await;
        if self.terms.is_modern() && self.template.front == TransportKind::Streamable {
            // In 2026-07-28, closing the response stream cancels the call.
            client.link.leave();
        } else {
            let params = json!({ "requestId": id, "reason": "the user has changed his mind" });
            client.send(json!({ "jsonrpc": "2.0", "method": CANCELLED, "params": params })).await?;
        }
        let deadline = Instant::now() + CANCEL_WAIT;
        while Instant::now() < deadline && !SeenFacts::read(self.notes).is_cancelled("wait") {
            client.drain(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn long_calls(&self, client: &mut DoctorClient) -> Result<(), Trouble> {
        let Some(long) = self.terms.long else { return Ok(()) };
        let every = (long / 10).min(Duration::from_secs(5)).max(Duration::from_millis(100));
        let count = u32::try_from(long.as_millis() / every.as_millis().max(1)).unwrap_or(u32::MAX);
        let wait = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        let progress = (1..=count.min(900)).map(|at| json!({ "progress": at, "total": count }));
        let talking = [paced(wait, progress.collect()), vec![answer_after(0)]].concat();
        let silent = [answer_after(u64::try_from(long.as_millis()).unwrap_or(u64::MAX))];
        let one = self.begin(client, "long", &talking, Some(json!("long"))).await?;
        let other = self.begin(client, "still", &silent, Some(json!("still"))).await?;
        client.wait(&[one, other], long + self.terms.timeout).await
    }
}
