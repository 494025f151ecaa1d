//! The conversation of a mock with one client: finds the recorded request for each of its requests, and determines what
//! the client gets and when. Has no I/O and no clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::rename::{RenamedKey, RequestNames};
use super::script::{MockScript, ScriptAct, ScriptReuse, ScriptSearch, ScriptStep};
use crate::lab::recordings::collect::request_token;
use crate::protocol::json;
use crate::protocol::jsonrpc::{INTERNAL_ERROR, Key, Kind, Message, error_answer};
use crate::protocol::mcp;

/// Maximum number of requests of one client that a mock answers simultaneously. A further request gets an error.
pub const OPEN_MAX: usize = 1024;

/// The longest wait between two steps of a mock.
const WAIT_MAX: Duration = Duration::from_secs(30 * 86_400);

/// How long a mock waits between its steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MockPace {
    /// The recorded time, divided by this number.
    Speed(f64),
    /// No wait.
    Instant,
}

impl MockPace {
    fn of(self, recorded: Duration) -> Duration {
        match self {
            Self::Speed(speed) => {
                let wait = Duration::try_from_secs_f64(recorded.as_secs_f64() / speed);
                wait.map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
            }
            Self::Instant => Duration::ZERO,
        }
    }
}

/// The options of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct MockTerms {
    pub(super) pace: MockPace,
    pub(super) reuse: ScriptReuse,
}

/// The counts of a mock, for its summary.
#[derive(Debug, Default, Clone)]
pub(super) struct MockTally {
    /// Requests that were answered from the recording.
    pub(super) served: usize,
    /// Descriptions of the requests that are not in the recording, [`MISSED_MAX`] at most.
    pub(super) missed: Vec<String>,
    /// The number of requests that are not in the recording.
    pub(super) misses: usize,
}

/// Maximum number of requests that a summary lists.
pub const MISSED_MAX: usize = 100;

/// A message of a mock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MockOutput {
    /// The text without a line ending.
    pub(super) text: Bytes,
    /// The number of the client's request that the message belongs to, in the order of arrival.
    pub(super) about: Option<u64>,
    /// Whether the message is the answer to that request.
    pub(super) is_answer: bool,
    /// Whether the text goes to standard error.
    pub(super) is_stderr: bool,
}

/// A recorded request that is being served.
#[derive(Debug)]
struct OpenAsk {
    /// The number of the client's request; `None` for a notification and for the opening.
    number: Option<u64>,
    /// The index of the request in the script; `None` for the opening.
    ask: Option<usize>,
    id: Option<Key>,
    names: RequestNames,
    /// Whether the client has asked for progress.
    has_token: bool,
    step: usize,
    due: Instant,
    awaits: Option<Key>,
}

impl OpenAsk {
    /// Steps that begin at this time, and that no request has asked for.
    fn at(due: Instant) -> Self {
        Self {
            number: None,
            ask: None,
            id: None,
            names: RequestNames::default(),
            has_token: false,
            step: 0,
            due,
            awaits: None,
        }
    }
}

/// The conversation with one client.
#[derive(Debug)]
pub(super) struct MockSession {
    script: Arc<MockScript>,
    terms: MockTerms,
    used: Vec<bool>,
    open: Vec<OpenAsk>,
    /// Messages that are due now.
    ready: VecDeque<MockOutput>,
    requests: u64,
}

impl MockSession {
    pub(super) fn new(script: &Arc<MockScript>, terms: MockTerms, now: Instant) -> Self {
        let mut session = Self {
            script: Arc::clone(script),
            terms,
            used: vec![false; script.asks.len()],
            open: Vec::new(),
            ready: VecDeque::new(),
            requests: 0,
        };
        session.begin(OpenAsk::at(now));
        session
    }

    /// Handles a message of the client. Returns the numbers of the requests in it that will be answered.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        message: &Message,
        tally: &mut MockTally,
    ) -> Vec<u64> {
        match message.kind() {
            Kind::Batch => {
                message.elements().filter_map(|one| self.receive_one(now, &one, tally)).collect()
            }
            _ => self.receive_one(now, message, tally).into_iter().collect(),
        }
    }

    fn receive_one(
        &mut self,
        now: Instant,
        message: &Message,
        tally: &mut MockTally,
    ) -> Option<u64> {
        match message.kind() {
            Kind::Request => Some(self.request(now, message, tally)),
            Kind::Notification => {
                self.notification(now, message);
                None
            }
            Kind::Response => {
                let id = message.id_key();
                let waits =
                    self.open.iter_mut().find(|open| open.awaits.is_some() && open.awaits == id);
                if let Some(open) = waits {
                    open.awaits = None;
                    open.step += 1;
                    open.due = now;
                    let after = next_step(&self.script, open).map(|step| step.after);
                    open.due += self.terms.pace.of(after.unwrap_or_default());
                }
                None
            }
            Kind::Batch | Kind::Opaque | Kind::Noise => None,
        }
    }

    fn request(&mut self, now: Instant, message: &Message, tally: &mut MockTally) -> u64 {
        self.requests += 1;
        let number = self.requests;
        let id = message.id().unwrap_or_default();
        let answer =
            |text| MockOutput { text, about: Some(number), is_answer: true, is_stderr: false };
        if self.open.len() >= OPEN_MAX {
            let why = format!("more than {OPEN_MAX} requests are open");
            self.ready.push_back(answer(error_answer(&id, INTERNAL_ERROR, &why, None)));
            return number;
        }
        match self.script.find(message, &self.used, self.terms.reuse) {
            ScriptSearch::Found(ask) => {
                tally.served += 1;
                if let Some(used) = self.used.get_mut(ask) {
                    *used = true;
                }
                let Some(known) = self.script.asks.get(ask) else { return number };
                let token = request_token(message);
                let renamed = |from: &Option<Key>, to: Option<Bytes>| {
                    from.clone().zip(to).map(|(from, to)| RenamedKey { from, to })
                };
                let names = RequestNames {
                    id: renamed(&known.id, Some(id)),
                    token: renamed(&known.token, token.clone()),
                };
                self.begin(OpenAsk {
                    number: Some(number),
                    ask: Some(ask),
                    id: message.id_key(),
                    names,
                    has_token: token.is_some(),
                    ..OpenAsk::at(now)
                });
            }
            ScriptSearch::Missed(..) if message.method().as_deref() == Some(mcp::PING) => {
                // A mock always answers `ping`, whatever was recorded.
                let text = [&br#"{"jsonrpc":"2.0","id":"#[..], &id, br#","result":{}}"#].concat();
                self.ready.push_back(answer(text.into()));
            }
            ScriptSearch::Missed(code, why) => {
                tally.misses += 1;
                if tally.missed.len() < MISSED_MAX {
                    tally.missed.push(why.clone());
                }
                self.ready.push_back(answer(error_answer(&id, code, &why, None)));
            }
        }
        number
    }

    fn notification(&mut self, now: Instant, message: &Message) {
        if message.method().as_deref() == Some(mcp::CANCELLED) {
            let id = message.params().and_then(|params| json::member(&params, "requestId"));
            let id = id.and_then(|id| Key::read(&id));
            self.open.retain(|open| id.is_none() || open.id != id);
        }
        if let ScriptSearch::Found(ask) = self.script.find(message, &self.used, ScriptReuse::Once)
            && self.used.get(ask) == Some(&false)
            && self.open.len() < OPEN_MAX
        {
            self.used[ask] = true;
            self.begin(OpenAsk { ask: Some(ask), ..OpenAsk::at(now) });
        }
    }

    /// Begins the steps of a request, the first of which is counted from its `due`.
    fn begin(&mut self, mut open: OpenAsk) {
        if let Some(step) = next_step(&self.script, &open) {
            open.due += self.terms.pace.of(step.after);
            self.open.push(open);
        }
    }

    /// Returns when the next message is due; `None` if nothing is due before the client sends something.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        if !self.ready.is_empty() {
            return Some(now);
        }
        self.open.iter().filter(|open| open.awaits.is_none()).map(|open| open.due).min()
    }

    /// Removes all waits from now on.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.terms.pace = MockPace::Instant;
        self.open.retain(|open| open.awaits.is_none());
        self.open.iter_mut().for_each(|open| open.due = open.due.min(now));
    }

    /// Whether nothing is left to send.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.open.is_empty()
    }

    /// Whether more messages follow for a request of the client.
    pub(super) fn is_open(&self, number: u64) -> bool {
        self.open.iter().any(|open| open.number == Some(number))
            || self.ready.iter().any(|ready| ready.about == Some(number))
    }

    /// Returns the next message that is due.
    pub(super) fn poll(&mut self, now: Instant) -> Option<MockOutput> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        loop {
            let due = self
                .open
                .iter()
                .enumerate()
                .filter(|(_, open)| open.awaits.is_none() && open.due <= now);
            let (at, _) = due.min_by_key(|(_, open)| open.due)?;
            if let Some(output) = self.step(at) {
                return Some(output);
            }
        }
    }

    /// Does the next step for an open request.
    fn step(&mut self, at: usize) -> Option<MockOutput> {
        let open = self.open.get_mut(at)?;
        let script = Arc::clone(&self.script);
        let Some(step) = next_step(&script, open) else {
            self.open.remove(at);
            return None;
        };
        let output = match &step.act {
            ScriptAct::Await(id) => {
                open.awaits = Some(id.clone());
                return None;
            }
            ScriptAct::Print(text) => Some((text.clone(), false, true)),
            ScriptAct::Send { text, is_about: false } => Some((text.clone(), false, false)),
            ScriptAct::Send { text, is_about: true } => {
                let message = Message::parse(text.clone());
                let is_progress = message.method().as_deref() == Some(mcp::PROGRESS);
                let is_answer = message.kind() == Kind::Response;
                // A request without a token gets no progress.
                let is_wanted = open.has_token || !is_progress;
                is_wanted.then(|| (open.names.rename(text), is_answer, false))
            }
        };
        open.step += 1;
        let about = open.number;
        match next_step(&script, open) {
            Some(next) => open.due += self.terms.pace.of(next.after),
            None => drop(self.open.remove(at)),
        }
        let (text, is_answer, is_stderr) = output?;
        Some(MockOutput { text, about, is_answer, is_stderr })
    }
}

fn next_step<'a>(script: &'a MockScript, open: &OpenAsk) -> Option<&'a ScriptStep> {
    match open.ask {
        Some(ask) => script.asks.get(ask)?.steps.get(open.step),
        None => script.opening.get(open.step),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::lab::recordings::calls::{RecordedCalls, RecordedSide};

    const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":"t"}}}"#;
    const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#;
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    fn session(text: &str, pace: MockPace, now: Instant) -> MockSession {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let recording = RecordedCalls::load(file.path()).unwrap();
        let script = Arc::new(MockScript::new(&recording, RecordedSide::Server));
        MockSession::new(&script, MockTerms { pace, reuse: ScriptReuse::Once }, now)
    }

    /// Returns all messages from now on, each with its time in milliseconds.
    fn played(session: &mut MockSession, start: Instant) -> Vec<(u128, String)> {
        let mut all = Vec::new();
        let mut now = start;
        while let Some(due) = session.next_due(now) {
            now = due;
            while let Some(output) = session.poll(now) {
                let text = String::from_utf8(output.text.to_vec()).unwrap();
                all.push((now.duration_since(start).as_millis(), text));
            }
        }
        all
    }

    fn receive(session: &mut MockSession, now: Instant, text: &str) -> Vec<u64> {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        session.receive(now, &message, &mut MockTally::default())
    }

    #[test]
    fn messages_come_at_the_recorded_times_or_faster() {
        let text = format!("> {CALL}\n+ 300ms\n< {PROGRESS}\n+ 600ms\n< {ANSWER}\n");
        for (pace, times) in [
            (MockPace::Speed(1.0), [300, 900]),
            (MockPace::Speed(3.0), [100, 300]),
            (MockPace::Speed(0.5), [600, 1800]),
            (MockPace::Instant, [0, 0]),
        ] {
            let now = Instant::now();
            let mut session = session(&text, pace, now);
            assert_eq!(receive(&mut session, now, CALL), [1]);
            let played = played(&mut session, now);
            let at: Vec<u128> = played.iter().map(|(at, _)| *at).collect();
            assert_eq!(at, times);
            assert_eq!(played[1].1, ANSWER);
        }
    }

    #[test]
    fn a_question_of_the_server_is_waited_for() {
        let question = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
        let reply = r#"{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}"#;
        let text = format!("> {CALL}\n< {question}\n+ 5s\n> {reply}\n+ 1s\n< {ANSWER}\n");
        let now = Instant::now();
        let mut session = session(&text, MockPace::Speed(1.0), now);
        receive(&mut session, now, CALL);
        // The mock waits for the client's answer, however long it takes.
        let first = played(&mut session, now);
        assert_eq!(first.iter().map(|(_, text)| &**text).collect::<Vec<_>>(), [question]);
        let later = now + Duration::from_secs(20);
        receive(&mut session, later, reply);
        assert_eq!(played(&mut session, later), [(1000, ANSWER.to_owned())]);
    }

    #[test]
    fn a_cancelled_request_gets_nothing_more() {
        let text = format!("> {CALL}\n+ 300ms\n< {PROGRESS}\n+ 600ms\n< {ANSWER}\n");
        let now = Instant::now();
        let mut session = session(&text, MockPace::Speed(1.0), now);
        receive(&mut session, now, CALL);
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        receive(&mut session, now, cancel);
        assert_eq!(played(&mut session, now), []);
        assert!(session.is_idle() && !session.is_open(1));
    }

    #[test]
    fn no_recorded_time_is_too_long_for_a_clock() {
        assert_eq!(MockPace::Speed(1e-300).of(Duration::from_secs(1)), WAIT_MAX);
        assert_eq!(MockPace::Speed(1e300).of(Duration::from_secs(1)), Duration::ZERO);
    }
}
