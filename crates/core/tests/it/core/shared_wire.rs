//! One connection to a server that many client streams share: cases that cannot be written as transcripts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost_core::progress::input::Input;
use milepost_core::progress::{
    Disposition, Filter, FilterEvent, Fragment, LargeRepairs, Mode, Origin, Policy, Repairs,
    SpooledAnswer, StreamId, StreamKind, StreamPacing, Verdict,
};
use milepost_core::protocol::jsonrpc::{Key, Message, Scan, own_error};
use proptest::prelude::*;
use serde_json::Value;

use crate::core::checker::Checker;
use crate::core::rig::from_file;
use crate::support::messages::{call_of, progress};

const HOME: StreamId = StreamId(0);

fn message(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

/// A filter with a session stream, with HTTP requests on streams 1 to `requests`, and with a clock.
struct Wire {
    filter: Filter,
    now: Instant,
}

impl Wire {
    fn new(policy: Policy, requests: u64) -> Self {
        let mut filter = Filter::new(policy);
        filter.open_stream(HOME, StreamKind::Shared, StreamPacing::Immediate);
        for id in 1..=requests {
            filter.open_stream(StreamId(id), StreamKind::Exchange, StreamPacing::Immediate);
        }
        Self { filter, now: Instant::now() }
    }

    fn client(&mut self, stream: u64, text: &str) -> String {
        let sent = self.filter.client_message(self.now, StreamId(stream), &message(text));
        String::from_utf8(sent.to_bytes().to_vec()).unwrap()
    }

    fn server(&mut self, text: &str) -> Disposition {
        self.filter.server_message(self.now, Origin::Shared, &message(text))
    }

    /// Returns the messages that a stream gets now, piece by piece.
    fn told(&mut self, stream: u64) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(transmit) = self.filter.poll_transmit(self.now, StreamId(stream)) {
            told.push(String::from_utf8(transmit.payload.to_bytes().to_vec()).unwrap());
            self.filter.written(self.now, StreamId(stream));
        }
        told
    }

    fn verdicts(&mut self) -> Vec<Verdict> {
        let records = std::iter::from_fn(|| self.filter.poll_event());
        let verdict = |record| match record {
            FilterEvent::Message { verdict, .. } => Some(verdict),
            _ => None,
        };
        records.filter_map(verdict).collect()
    }

    fn said_to_server(&mut self) -> Vec<String> {
        let sent = std::iter::from_fn(|| self.filter.poll_to_server());
        sent.map(|sent| String::from_utf8(sent.to_bytes().to_vec()).unwrap()).collect()
    }
}

fn quiet() -> Policy {
    let mut policy = Policy::default();
    policy.call.heartbeat.enabled = false;
    policy
}

/// A call times out even if no client stream can be written to.
#[test]
fn calls_end_on_time_though_nobody_reads() {
    let mut policy = quiet();
    policy.call.call_timeout = Some(Duration::from_secs(4));
    let mut wire = Wire::new(policy, 1);
    assert_eq!(wire.filter.poll_timeout(), None);
    wire.client(1, &call_of("a", "1", "7"));
    let at = wire.filter.poll_timeout().unwrap();
    assert_eq!(at, wire.now + Duration::from_secs(4));
    wire.now = at;
    wire.filter.handle(at, &Input::Expire);
    assert_eq!(wire.said_to_server().len(), 1);
    assert_eq!(wire.filter.open_calls(), 0);
    assert_eq!(wire.filter.poll_timeout(), None);
    assert!(wire.told(1)[0].contains("-32603"));
}

/// A shell can end one call with an error that it passes to the filter as the server's answer.
#[test]
fn one_call_fails_and_no_other() {
    for mode in [Mode::Full, Mode::Observe] {
        let mut policy = quiet();
        policy.set_mode(mode);
        let mut wire = Wire::new(policy, 2);
        wire.client(1, &call_of("a", "1", "7"));
        wire.client(2, &call_of("a", "\"1\"", "8"));
        let error = own_error(b"\"1\"", "the connection broke", None);
        wire.server(std::str::from_utf8(&error).unwrap());
        assert_eq!(wire.told(2), [String::from_utf8(error.to_vec()).unwrap()]);
        assert_eq!((wire.told(1), wire.told(0)), (vec![], vec![]));
        assert!(
            wire.filter.intake().has_calls_on(StreamId(1))
                && !wire.filter.intake().has_calls_on(StreamId(2))
        );
    }
}

/// The pieces of a large answer go to the stream of its call, if the first piece shows which call that is.
#[test]
fn a_large_answer_passes_on_the_stream_of_its_call() {
    for mode in [Mode::Full, Mode::Observe] {
        let mut policy = quiet();
        policy.set_mode(mode);
        let mut wire = Wire::new(policy, 2);
        wire.client(1, &call_of("a", "1", "7"));
        wire.client(2, &call_of("a", "2", "8"));
        let pieces = [r#"{"jsonrpc":"2.0","id":2,"result":{"te"#, r#"xt":"lo"#, "ng\"}}\n"];
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        wire.filter.intake_mut().begin_large(
            wire.now,
            Origin::Shared,
            bytes(pieces[0]),
            0..pieces[0].len(),
        );
        for piece in &pieces[1..] {
            wire.filter.intake_mut().large_piece(
                wire.now,
                Origin::Shared,
                bytes(piece),
                0..piece.len(),
            );
        }
        wire.filter.intake_mut().finish_large(wire.now, Origin::Shared);
        assert_eq!(wire.told(2).concat(), pieces.concat());
        assert_eq!((wire.told(1), wire.told(0)), (vec![], vec![]));
        assert!(!wire.filter.intake().has_calls_on(StreamId(2)));
    }
}

/// If different clients share the server, a large message cannot be forwarded unchanged, so its call fails.
#[test]
fn a_large_answer_never_passes_with_an_id_of_ours() {
    let mut wire = Wire::new(Policy { id_mapping: true, ..quiet() }, 2);
    wire.client(1, &call_of("a", "5", "7"));
    wire.client(2, &call_of("a", "5", "7"));
    let text = r#"{"jsonrpc":"2.0","id":1,"result":{"text":"lo"#;
    wire.filter.intake_mut().begin_large(
        wire.now,
        Origin::Shared,
        Bytes::from_static(text.as_bytes()),
        0..text.len(),
    );
    wire.filter.intake_mut().finish_large(wire.now, Origin::Shared);
    let told = wire.told(1);
    assert!(told.len() == 1 && told[0].contains(r#""id":5,"error""#), "{told:?}");
    assert_eq!((wire.told(2), wire.told(0)), (vec![], vec![]));
}

/// Returns an answer to a call of client 1, whose id is `"mine"`, as client 1 reads it from a file in pieces.
fn read_from_file(answer: &str, piece: usize) -> (String, Vec<&'static str>) {
    let mut wire = Wire::new(Policy { id_mapping: true, bare_results: true, ..quiet() }, 1);
    wire.client(1, &call_of("a", "\"mine\"", "7"));
    let mut scan = Scan::default();
    scan.feed(answer.as_bytes());
    let needs = LargeRepairs::needed(&scan);
    let answered =
        wire.filter.intake_mut().answer_spooled(wire.now, &scan.id().unwrap(), needs).unwrap();
    let SpooledAnswer { stream, mut repairs, .. } = answered;
    assert_eq!((stream, wire.filter.open_calls()), (StreamId(1), 0));
    let told = from_file(&mut repairs, answer, piece);
    let needed = needs.iter().map(|repair| repair.name()).collect();
    (told, needed)
}

/// An answer that is kept in a file gets the same repairs as an answer in memory, in pieces of any size.
#[test]
fn an_answer_kept_apart_gets_the_id_of_its_client_and_the_shape_of_an_answer() {
    let long = "-".repeat(300);
    let row = |answer: &str, expected: &str, needed: &[&str]| {
        let [answer, expected] = [answer, expected].map(|text| text.replace("LONG", &long));
        for piece in 1..answer.len() + 1 {
            let (told, needs) = read_from_file(&answer, piece);
            assert_eq!((&*told, &needs[..]), (&*expected, needed), "{piece}");
        }
    };
    row(
        r#"{"jsonrpc":"2.0","result":{"content":[{"text":"LONG"}],"id":3}, "id" : 1 }"#,
        r#"{"jsonrpc":"2.0","result":{"content":[{"text":"LONG"}],"id":3}, "id" : "mine" }"#,
        &[],
    );
    row(
        r#"{"jsonrpc":"2.0","id":1,"result":"LONG \"é\""}"#,
        r#"{"jsonrpc":"2.0","id":"mine","result":{"content":[{"type":"text","text":"\"LONG \\\"é\\\"\""}],"isError":false}}"#,
        &["bare-result"],
    );
    row(
        r#"{"jsonrpc":"2.0","error":"LONG","id":1}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"LONG"},"id":"mine"}"#,
        &["error-shape"],
    );
    row(
        r#"{"jsonrpc":"2.0","error":{"message":"LONG"},"id":1}"#,
        r#"{"jsonrpc":"2.0","error":{"message":"LONG","code":-32603},"id":"mine"}"#,
        &["error-shape"],
    );
    row(
        r#"{"jsonrpc":"2.0","error":{"code":5,"message":"LONG"},"id":1}"#,
        r#"{"jsonrpc":"2.0","error":{"code":5,"message":"LONG"},"id":"mine"}"#,
        &[],
    );
    row(
        r#"{"id":1,"result":{"content":["LONG"]}}"#,
        r#"{"id":"mine","result":{"content":["LONG"]},"jsonrpc":"2.0"}"#,
        &["envelope"],
    );
    row(
        r#"{"jsonrpc":"1.0","id":1,"result":{"content":["LONG"]}}"#,
        r#"{"jsonrpc":"2.0","id":"mine","result":{"content":["LONG"]}}"#,
        &["envelope"],
    );
}

/// Two large answers on two streams of the server are not mixed on the single stream of their client.
#[test]
fn large_answers_of_two_upstream_streams_follow_each_other() {
    let mut wire = Wire::new(quiet(), 0);
    let (one, other) = (StreamId(70), StreamId(71));
    for (id, upstream) in [("1", one), ("2", other)] {
        let text = call_of("a", id, id);
        wire.client(0, &text);
        wire.filter.intake_mut().pair(HOME, &message(&text), upstream);
    }
    let begin = |wire: &mut Wire, on, id| {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{id}"#);
        let length = head.len();
        wire.filter.intake_mut().begin_large(wire.now, Origin::Stream(on), head.into(), 0..length);
    };
    let more = |wire: &mut Wire, on, text: &'static str| {
        let piece = Bytes::from_static(text.as_bytes());
        wire.filter.intake_mut().large_piece(wire.now, Origin::Stream(on), piece, 0..text.len());
    };
    begin(&mut wire, one, 1);
    let mut told = wire.told(0);
    begin(&mut wire, other, 2);
    told.extend(wire.told(0));
    more(&mut wire, other, "2");
    more(&mut wire, one, "1");
    told.extend(wire.told(0));
    more(&mut wire, one, "\"}\n");
    wire.filter.intake_mut().finish_large(wire.now, Origin::Stream(one));
    more(&mut wire, other, "\"}\n");
    wire.filter.intake_mut().finish_large(wire.now, Origin::Stream(other));
    told.extend(wire.told(0));
    assert_eq!(
        told.concat(),
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"11\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"22\"}\n"
    );
}

/// If a stream of the server breaks in the middle of a large answer, only the call of that answer fails.
#[test]
fn a_large_answer_that_breaks_off_fails_its_call_only() {
    let mut wire = Wire::new(quiet(), 0);
    for (id, upstream) in [("1", 70), ("2", 71)] {
        let text = call_of("a", id, id);
        wire.client(0, &text);
        wire.filter.intake_mut().pair(HOME, &message(&text), StreamId(upstream));
    }
    let head = r#"{"jsonrpc":"2.0","id":1,"result":"x"#;
    let on = Origin::Stream(StreamId(70));
    wire.filter.intake_mut().begin_large(
        wire.now,
        on,
        Bytes::from_static(head.as_bytes()),
        0..head.len(),
    );
    wire.filter.intake_mut().break_off_server(wire.now, on, "the stream broke");
    let told = wire.told(0).concat();
    assert!(told.starts_with(head) && told.contains(r#""id":1,"error""#), "{told}");
    assert_eq!(wire.filter.open_calls(), 1);
    let text = progress("2", 1);
    wire.filter.server_message(wire.now, Origin::Stream(StreamId(71)), &message(&text));
    assert_eq!(wire.told(0), [text]);
}

/// A name that was given long ago is not taken for a token that the server invented for the next request.
#[test]
fn names_of_long_ago_are_nobodys() {
    let mut wire = Wire::new(Policy { id_mapping: true, ..quiet() }, 2);
    for _ in 0..3000 {
        let sent: Value = serde_json::from_str(&wire.client(1, &call_of("a", "1", "1"))).unwrap();
        wire.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, sent["id"]));
        wire.told(1);
    }
    wire.client(2, &call_of("a", "1", "1"));
    wire.verdicts();
    wire.server(&progress("1", 5));
    wire.server(r#"{"jsonrpc":"2.0","method":"tools/progress","params":{"id":1,"content":[]}}"#);
    wire.server(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(wire.told(2), Vec::<String>::new());
    assert!(wire.verdicts().iter().all(|verdict| matches!(verdict, Verdict::Withheld(_))));
}

/// Ids and tokens that several clients choose.
const NAMES: [&str; 6] = ["0", "1", "\"\"", "\"1\"", "2", "\"a\""];

/// The state of a call in the property test below.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Open,
    Answered,
    GivenUp(Duration),
    /// The call's stream has closed. No client waits for the answer, and the server does not know.
    Gone,
}

#[derive(Debug)]
struct Asked {
    stream: u64,
    id: &'static str,
    listens: bool,
    /// The id by which the server knows the call.
    server: i64,
    state: State,
    answers: u32,
    figure: u32,
}

/// Clients that share one server. Their names may be the same, because they do not know of each other.
struct Clients {
    filter: Filter,
    start: Instant,
    now: Duration,
    /// The stream of a client that uses only one stream; `None` for a client that opens a stream for each request.
    lasting: Vec<Option<u64>>,
    streams: u64,
    calls: Vec<Asked>,
    checkers: BTreeMap<u64, Checker>,
    observing: bool,
}

impl Clients {
    fn new(dice: &[bool], observing: bool) -> Self {
        let mode = if observing { Mode::Observe } else { Mode::Full };
        let mut policy = Policy { id_mapping: true, ..Policy::default() };
        policy.set_mode(mode);
        let mut filter = Filter::new(policy);
        filter.open_stream(HOME, StreamKind::Shared, StreamPacing::Immediate);
        let mut streams = 0;
        let mut lasting = Vec::new();
        for lasts in dice {
            lasting.push(lasts.then(|| {
                streams += 1;
                filter.open_stream(StreamId(streams), StreamKind::Shared, StreamPacing::Immediate);
                streams
            }));
        }
        Self {
            filter,
            start: Instant::now(),
            now: Duration::ZERO,
            lasting,
            streams,
            calls: Vec::new(),
            checkers: BTreeMap::new(),
            observing,
        }
    }

    fn now(&self) -> Instant {
        self.start + self.now
    }

    /// Passes a client's message to the filter. Returns the message that the server gets.
    fn says(&mut self, stream: u64, text: &str) -> Option<Value> {
        self.checkers.entry(stream).or_default().client_said(text);
        let now = self.now();
        let sent = self.filter.client_message(now, StreamId(stream), &message(text)).to_bytes();
        (!sent.is_empty()).then(|| serde_json::from_slice(&sent).unwrap())
    }

    fn open(&mut self, client: usize, id: u8, token: u8, how: u8) {
        let client = client % self.lasting.len();
        let stream = self.lasting[client].unwrap_or_else(|| {
            self.streams += 1;
            self.filter.open_stream(
                StreamId(self.streams),
                StreamKind::Exchange,
                StreamPacing::Immediate,
            );
            self.streams
        });
        let id = NAMES[usize::from(id) % NAMES.len()];
        let used =
            |call: &Asked| call.stream == stream && call.id == id && call.state == State::Open;
        if self.calls.iter().any(used) {
            return;
        }
        let number = self.calls.len();
        let listens = how.is_multiple_of(8);
        let method = if listens { "subscriptions/listen" } else { "tools/call" };
        let token = NAMES[usize::from(token) % NAMES.len()];
        let meta = if how % 8 < 2 { String::new() } else { format!(r#""progressToken":{token}"#) };
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"t","arguments":{{"mark":"m{number}."}},"_meta":{{{meta}}}}}}}"#
        );
        let text = if how % 16 == 9 { format!("[{text}]") } else { text };
        let sent = self.says(stream, &text).unwrap();
        let sent = if sent.is_array() { sent[0].clone() } else { sent };
        assert_eq!(sent["params"]["arguments"]["mark"], format!("m{number}."));
        let server = sent["id"].as_i64().unwrap();
        assert!(meta.is_empty() || sent["params"]["_meta"]["progressToken"] == server);
        assert!(self.calls.iter().all(|call| call.server != server));
        let state = State::Open;
        self.calls.push(Asked { stream, id, listens, server, state, answers: 0, figure: 0 });
    }

    /// Cancels a client's request with this id on a stream.
    fn cancel(&mut self, stream: u64, id: &str) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        let sent = self.says(stream, &text);
        let now = self.now;
        let own = self.calls.iter_mut().find(|call| {
            call.stream == stream
                && call.id == id
                && matches!(call.state, State::Open | State::Gone)
        });
        match own {
            Some(call) => {
                assert_eq!(sent.unwrap()["params"]["requestId"], call.server);
                call.state = State::GivenUp(now);
            }
            None => assert_eq!(sent, None, "a cancellation of another client's request"),
        }
    }

    fn close(&mut self, call: usize, cancels: bool) {
        let stream = self.calls[call].stream;
        if self.lasting.contains(&Some(stream)) {
            return;
        }
        self.filter.handle(self.now(), &Input::CloseStream(StreamId(stream), cancels));
        let told = std::iter::from_fn(|| self.filter.poll_to_server());
        let told: Vec<Value> =
            told.map(|sent| serde_json::from_slice(&sent.to_bytes()).unwrap()).collect();
        let call = &mut self.calls[call];
        let open = matches!(call.state, State::Open | State::Gone);
        assert_eq!(told.len(), usize::from(open && cancels));
        assert!(told.iter().all(|told| told["params"]["requestId"] == call.server));
        if open {
            call.state = if cancels { State::GivenUp(self.now) } else { State::Gone };
        }
    }

    /// Returns a message that the server may send about a call at any time, because the message names the call.
    fn names(&mut self, number: usize, how: u8) -> String {
        let call = &mut self.calls[number];
        call.figure += u32::from(how % 5 != 4);
        let (name, figure) = (call.server, call.figure);
        if call.listens {
            return format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{name}}},"mark":"m{number}."}}}}"#
            );
        }
        match how % 6 {
            0 | 1 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{name},"progress":{figure},"message":"m{number}."}}}}"#
            ),
            2 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{name}","requestId":{name},"message":"m{number}."}}}}"#
            ),
            3 => format!(
                r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":{name},"content":[{{"type":"text","text":"m{number}."}}]}}}}"#
            ),
            4 => format!(
                r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":"{name}","content":[{{"type":"text","text":"m{number}."}}]}}}}"#
            ),
            _ => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{{"requestId":{name},"chunk":"m{number}."}}}}"#
            ),
        }
    }

    /// Returns a message that the server may send while it works on a call, without naming the call.
    fn strays(&self, number: usize, how: u8) -> Option<String> {
        let call = &self.calls[number];
        let at_work = match call.state {
            State::Open | State::Gone => true,
            State::GivenUp(at) => self.now < at + Duration::from_secs(9),
            State::Answered => false,
        };
        if call.listens || !at_work {
            return None;
        }
        Some(match how % 6 {
            0 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"m{number}."}}}}"#
            ),
            1 => format!(
                r#"{{"jsonrpc":"2.0","id":{how},"method":"sampling/createMessage","params":{{"mark":"m{number}."}}}}"#
            ),
            2 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"always","progress":{how},"message":"m{number}."}}}}"#
            ),
            3 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"own-{number}","progress":{how},"message":"m{number}."}}}}"#
            ),
            4 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{{"toolName":"t","message":"m{number}."}}}}"#
            ),
            _ => format!(
                r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":"unknown","content":[{{"type":"text","text":"m{number}."}}]}}}}"#
            ),
        })
    }

    fn answer(&self, number: usize, how: u8) -> String {
        let Asked { server, .. } = self.calls[number];
        match how % 5 {
            0 => format!(r#"{{"jsonrpc":"2.0","id":"{server}","result":{{"text":"m{number}."}}}}"#),
            1 => format!(r#"{{"id":{server},"error":"m{number}."}}"#),
            2 => format!(
                r#"{{"result":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{server}}},"text":"m{number}."}},"jsonrpc":"2.0","id":{server}}}"#
            ),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{server},"result":{{"text":"m{number}."}}}}"#),
        }
    }

    fn server(&mut self, text: &str) {
        let now = self.now();
        self.filter.server_message(now, Origin::Shared, &message(text));
        self.hear();
    }

    /// Answers a call, which may have ended. The answer may be too large to be kept whole, or come together with
    /// another answer.
    fn answers(&mut self, number: usize, how: u8) {
        let text = self.answer(number, how / 4);
        match how % 4 {
            0 => {
                let now = self.now();
                let (key, none) = (Key::Integer(self.calls[number].server), Repairs::default());
                let apart = self.filter.intake_mut().answer_spooled(now, &key, none);
                self.hear();
                if let Some(SpooledAnswer { stream, mut repairs, .. }) = apart {
                    let server = self.calls[number].server;
                    let text = format!(
                        r#"{{"jsonrpc":"2.0","id":{server},"result":{{"content":"m{number}."}}}}"#
                    );
                    let text = from_file(&mut repairs, &text, usize::MAX);
                    self.is_told(stream.0, &text);
                }
            }
            1 => {
                let other = usize::from(how) % self.calls.len();
                let said = self.names(other, how / 8);
                self.server(&format!("[{text},{said}]"));
            }
            2 => {
                let other = usize::from(how) % self.calls.len();
                let said = self.names(other, how / 8);
                self.server(&format!("{said}{text}"));
            }
            _ => self.server(&text),
        }
        let call = &mut self.calls[number];
        if call.state == State::Gone {
            call.state = State::Answered;
        }
    }

    fn hear(&mut self) {
        for stream in 0..=self.streams {
            while let Some(transmit) = self.filter.poll_transmit(self.now(), StreamId(stream)) {
                assert_eq!(transmit.part, Fragment::Whole);
                let text = String::from_utf8(transmit.payload.to_bytes().to_vec()).unwrap();
                self.filter.written(self.now(), StreamId(stream));
                self.is_told(stream, &text);
            }
        }
    }

    fn is_told(&mut self, stream: u64, text: &str) {
        for mark in text.split("\"m").skip(1) {
            let number: String = mark.chars().take_while(char::is_ascii_digit).collect();
            if mark[number.len()..].starts_with('.') {
                let number: usize = number.parse().unwrap();
                assert_eq!(self.calls[number].stream, stream, "for {number}: {text}");
            }
        }
        assert_ne!(stream, 0, "{text}");
        if !self.observing {
            self.checkers.entry(stream).or_default().client_told(text);
        }
        let told: Value = serde_json::from_str(text).unwrap();
        if told.get("method").is_some() {
            return;
        }
        let id = told["id"].to_string();
        let asked =
            |call: &&mut Asked| call.stream == stream && call.id == id && call.state == State::Open;
        let call = self.calls.iter_mut().find(asked);
        let call = call.unwrap_or_else(|| panic!("nobody asked on {stream}: {text}"));
        if let Some(meta) = told["result"].get("_meta") {
            let again = &meta["io.modelcontextprotocol/subscriptionId"];
            assert!(!call.listens || *again == told["id"], "{text}");
        }
        call.state = State::Answered;
        call.answers += 1;
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.filter.poll_timeout().map(|at| at - self.start)
            && at <= end
        {
            self.now = self.now.max(at);
            self.hear();
        }
        self.now = end;
        self.hear();
    }

    fn step(&mut self, [what, which, how, more]: [u8; 4]) {
        let call = (!self.calls.is_empty())
            .then(|| self.calls.len() - 1 - usize::from(which) % self.calls.len());
        match (what % 16, call) {
            (0..4, _) | (_, None) => {
                self.open(usize::from(which), how, more, (what / 16).wrapping_add(how))
            }
            (4, Some(call)) => {
                let (stream, id) = (self.calls[call].stream, self.calls[call].id);
                self.cancel(stream, id);
            }
            (5, Some(call)) => {
                let stream = self.calls[call].stream;
                self.cancel(stream, NAMES[usize::from(how) % NAMES.len()]);
            }
            (6, Some(call)) => self.close(call, how % 3 > 0),
            (7, Some(call)) => {
                let stream = self.calls[call].stream;
                let text = format!(r#"{{"jsonrpc":"2.0","id":{how},"result":{{}}}}"#);
                assert_eq!(self.says(stream, &text).unwrap()["id"], how);
            }
            (8 | 9, Some(call)) => {
                if let Some(text) = self.strays(call, how) {
                    self.server(&text);
                }
            }
            (10 | 11, Some(call)) => self.answers(call, how),
            (12, _) => self.pass(Duration::from_millis(u64::from(how) * 20)),
            (_, Some(call)) => {
                let text = self.names(call, how);
                self.server(&text);
            }
        }
        self.hear();
    }
}

proptest! {
    /// Clients with equal ids and tokens give calls up, disconnect and reconnect. No client sees a message of another
    /// client, and each request is answered once or was given up.
    #[test]
    fn no_client_sees_a_message_of_another(
        dice in prop::collection::vec(any::<bool>(), 2..=5),
        observing in prop::bool::weighted(0.2),
        steps in prop::collection::vec(any::<[u8; 4]>(), 1..80),
    ) {
        let mut clients = Clients::new(&dice, observing);
        for step in steps {
            clients.step(step);
        }
        for number in 0..clients.calls.len() {
            let text = clients.answer(number, 3);
            clients.server(&text);
        }
        clients.pass(Duration::from_secs(1));
        prop_assert_eq!(clients.filter.open_calls(), 0);
        for call in &clients.calls {
            match call.state {
                State::Open => prop_assert!(false, "never answered: {call:?}"),
                State::Answered => prop_assert!(call.answers <= 1, "{call:?}"),
                State::GivenUp(_) | State::Gone => prop_assert_eq!(call.answers, 0, "{:?}", call),
            }
        }
    }
}

/// The server still works on a call that its client has given up. Another request with the same id must not get that
/// answer.
#[test]
fn a_request_with_the_id_of_work_that_goes_on_gets_an_id_of_mileposts_own() {
    let mut policy = quiet();
    policy.call.late.enabled = true;
    let mut wire = Wire::new(policy, 0);
    assert_eq!(wire.client(0, &call_of("a", "1", "")), call_of("a", "1", ""));
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"Request timed out"}}"#;
    assert_eq!(wire.client(0, cancel), "");
    let sent = wire.client(0, r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#);
    let id = serde_json::from_str::<Value>(&sent).unwrap()["id"].clone();
    assert_ne!(id, 1);
    wire.server(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#);
    assert_eq!(wire.told(0), [""; 0]);
    wire.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resources":[]}}}}"#));
    wire.now += Duration::from_secs(1);
    assert_eq!(wire.told(0), [r#"{"jsonrpc":"2.0","id":1,"result":{"resources":[]}}"#]);
}
