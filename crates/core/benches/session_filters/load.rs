//! The requests of a client, and the server's messages in response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost_core::progress::{Policy, RequestMembers};
use milepost_core::protocol::jsonrpc::Message;

use crate::shell::{Event, Session};

/// Number of events in one read, if there are many events.
const EVENTS_A_READ: usize = 32;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1.0"}}}"#;
const WELCOME: &str = r#"{"jsonrpc":"2.0","id":"hello","result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"server","version":"1.0"}}}"#;
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Number of progress notifications per request. If it is zero, the server answers with JSON.
    pub(crate) reports: usize,
    /// Whether the server invents the token of its reports.
    pub(crate) invents: bool,
    /// Number of requests that are open at the same time.
    pub(crate) open: usize,
    /// Whether the client reuses its ids and tokens for later requests.
    pub(crate) reuses: bool,
}

impl Load {
    pub(crate) fn words(self) -> String {
        let reports = match (self.reports, self.invents) {
            (0, _) => "no reports, JSON".to_owned(),
            (1000, true) => "1,000 reports under an invented token".to_owned(),
            (1000, false) => "1,000 reports".to_owned(),
            (few, _) => format!("{few} reports"),
        };
        let ids = if self.reuses { ", ids reused" } else { "" };
        format!("{reports}{ids}")
    }

    /// Returns the load as command-line arguments.
    pub(crate) fn to_arguments(self) -> [String; 4] {
        let flag = |is_set: bool| u8::from(is_set).to_string();
        [self.reports.to_string(), flag(self.invents), self.open.to_string(), flag(self.reuses)]
    }

    pub(crate) fn of_arguments(words: &[String]) -> Self {
        let [reports, invents, open, reuses] = words else { panic!("four words: {words:?}") };
        Self {
            reports: reports.parse().unwrap(),
            invents: invents == "1",
            open: open.parse().unwrap(),
            reuses: reuses == "1",
        }
    }

    /// Returns the requests of one round, numbered from `first`.
    pub(crate) fn scripts(self, first: usize) -> Vec<Script> {
        (0..self.open).map(|slot| self.script(first, slot)).collect()
    }

    fn script(self, first: usize, slot: usize) -> Script {
        let id = if self.reuses { slot } else { first + slot };
        let request = message(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"work","arguments":{{"count":10}},"_meta":{{"progressToken":"p{id}"}}}}}}"#
        ));
        let answer = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"done"}}]}}}}"#
        );
        let token = if self.invents { format!("job-{id}") } else { format!("p{id}") };
        let reports: Vec<Event> = (1..=self.reports)
            .map(|step| {
                event(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{token}","progress":{step},"total":1000,"message":"Step {step} of 1000"}}}}"#
                ))
            })
            .collect();
        let a_read = if self.reports > 2 { EVENTS_A_READ } else { 1 };
        let reads = reports.chunks(a_read).map(<[Event]>::to_vec).collect();
        let members = RequestMembers::of(&request);
        let last = [event(&answer)];
        Script { request, members, reads, last, answer: Bytes::from(answer) }
    }
}

/// One request and its response.
pub(crate) struct Script {
    pub(crate) request: Message,
    pub(crate) members: RequestMembers,
    /// The events of each read.
    pub(crate) reads: Vec<Vec<Event>>,
    /// The answer as an event.
    last: [Event; 1],
    answer: Bytes,
}

fn message(text: String) -> Message {
    Message::parse(Bytes::from(text))
}

fn event(text: &str) -> Event {
    let head = "event: message\ndata: ";
    let text_at = head.len()..head.len() + text.len();
    Event { frame: Bytes::from(format!("{head}{text}\n\n")), text: text_at }
}

/// A clock that goes on by a millisecond each time that it is read.
pub(crate) struct Clock {
    now: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { now: Instant::now() }
    }

    pub(crate) fn next(&mut self) -> Instant {
        self.now += Duration::from_millis(1);
        self.now
    }
}

/// Returns a session after the handshake.
pub(crate) fn begun<S: Session>(policy: &Arc<Policy>, clock: &mut Clock) -> S {
    let session = S::new(policy);
    let hello = message(HELLO.to_owned());
    let mut request = session.open(clock.next(), &hello, &RequestMembers::of(&hello));
    session.body(&mut request, clock.next(), &Bytes::from(WELCOME));
    session.close(request, clock.next());
    session.notify(clock.next(), &message(READY.to_owned()));
    session
}

/// Plays the requests of one round. All of them are open at the same time, and their reports alternate. Returns the
/// number of messages that the client got.
#[inline(never)]
pub(crate) fn round<S: Session>(
    session: &S,
    scripts: &[Script],
    mut now: impl FnMut() -> Instant,
    mut between: impl FnMut(usize),
) -> usize {
    let mut told = 0;
    let mut open = Vec::with_capacity(scripts.len());
    for script in scripts {
        between(0);
        open.push(session.open(now(), &script.request, &script.members));
    }
    let reads = scripts.iter().map(|script| script.reads.len()).max().unwrap_or_default();
    for read in 0..reads {
        for (request, script) in open.iter_mut().zip(scripts) {
            let events = &script.reads[read];
            between(events.len());
            told += session.read(request, now(), events);
        }
    }
    for (mut request, script) in open.into_iter().zip(scripts) {
        between(0);
        if reads == 0 {
            told += session.body(&mut request, now(), &script.answer);
        } else {
            told += session.read(&mut request, now(), &script.last);
            told += session.end(&mut request, now());
        }
        session.close(request, now());
    }
    told
}
