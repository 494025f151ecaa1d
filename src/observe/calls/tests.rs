//! Tests of the table of calls, with the filter of each kind of connection.

use std::task::{Context, Waker};

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::observe::events::EventEmitter;
use crate::progress::input::Input;
use crate::progress::{CallPolicy, Mode, Origin, Pacing, StreamId, StreamKind, StreamPacing};
use crate::protocol::jsonrpc::Message;
use crate::relay::filter_guard::FilterGuard;

const SOLE_STREAM: StreamId = StreamId(0);

/// A conversation: a filter that fills a table.
struct Talk {
    table: Arc<Table>,
    filter: FilterGuard,
    now: Instant,
}

fn policy(mode: Mode) -> Arc<Policy> {
    let call = CallPolicy { mode, pacing: Pacing::IMMEDIATE, ..CallPolicy::default() };
    Arc::new(Policy { call, ..Policy::default() })
}

fn look_on(table: &Arc<Table>, filter: &mut FilterGuard, scope: Scope, policy: &Arc<Policy>) {
    let id = FilterId { conversation: 1, filter: 1 };
    let observer = Watch { table: Arc::clone(table) }.begin(id, "/r", scope, policy);
    filter.set_emitter(EventEmitter::new(id, Instant::now(), observer.into_iter().collect()));
}

impl Talk {
    fn new(mode: Mode) -> Self {
        Self::on(&Table::new(["/r", "/idle"]), mode)
    }

    fn on(table: &Arc<Table>, mode: Mode) -> Self {
        let policy = policy(mode);
        let mut filter = crate::progress::Filter::new(Arc::clone(&policy));
        filter.open_stream(SOLE_STREAM, StreamKind::Shared, StreamPacing::Immediate);
        let mut filter = FilterGuard::new(filter, Arc::clone(&policy), SOLE_STREAM);
        look_on(table, &mut filter, Scope::Whole, &policy);
        Self { table: Arc::clone(table), filter, now: Instant::now() }
    }

    fn ask(&mut self, text: &str) {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        self.filter.client_message(self.now, SOLE_STREAM, &message);
        self.drain();
    }

    fn call(&mut self, id: u32, tool: &str, token: &str) {
        self.ask(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","_meta":{{"progressToken":{token}}}}}}}"#
        ));
    }

    fn say(&mut self, text: &str) {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        self.filter.server_message(self.now, Origin::Shared, &message);
        self.drain();
    }

    fn progress(&mut self, token: &str, rest: &str) {
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{rest}}}}}"#
        ));
        // Repaired progress is thinned.
        self.pass(Duration::from_millis(100));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.drain();
    }

    fn drain(&mut self) {
        while self.filter.poll_transmit(self.now, SOLE_STREAM).is_some() {
            self.filter.apply(self.now, Input::MarkWritten(SOLE_STREAM));
        }
        while self.filter.poll_event().is_some() {}
    }
}

fn all(table: &Table) -> Value {
    serde_json::from_str(&table.json()).unwrap()
}

fn calls(table: &Table) -> Vec<Value> {
    all(table)["calls"].as_array().unwrap().clone()
}

fn one(table: &Table, number: u64) -> Value {
    serde_json::from_str(&table.call_json(number).unwrap()).unwrap()
}

/// Returns the verdicts on the messages of a call: `what why,why`.
fn fates(table: &Table, number: u64) -> Vec<String> {
    let call = one(table, number);
    let line = |message: &Value| {
        let why = message["why"].as_array().unwrap().iter();
        let why: Vec<&str> = why.map(|why| why.as_str().unwrap()).collect();
        let what = message["what"].as_str().unwrap();
        assert_eq!(why.len(), message["because"].as_array().unwrap().len(), "{message}");
        format!("{what} {}", why.join(",")).trim().to_owned()
    };
    call["messages"].as_array().unwrap().iter().map(line).collect()
}

#[test]
fn a_call_is_known_from_its_request_to_its_answer() {
    let mut talk = Talk::new(Mode::Full);
    talk.ask(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"tester","version":"1"}}}"#,
    );
    talk.call(1, "build", "\"t\"");
    talk.progress("\"t\"", r#""progress":0.25,"total":1,"message":"linking""#);
    let open = &calls(&talk.table)[1];
    for (key, value) in [
        ("n", json!(2)),
        ("route", json!("/r")),
        ("method", json!("tools/call")),
        ("tool", json!("build")),
        ("client", json!("tester 1")),
        ("token", json!(true)),
        ("observed", json!(false)),
        ("ended", json!(null)),
        ("outcome", json!(null)),
        ("progress", json!("0.25")),
        ("total", json!("1")),
        ("message", json!("linking")),
        ("received", json!(1)),
        ("sent", json!(1)),
        ("messages", json!(2)),
    ] {
        assert_eq!(open[key], value, "{key}: {open}");
    }
    // In order: unchanged progress, a foreign token and a falling value, silence, and the answer.
    talk.progress("\"t\"", r#""progress":0.25,"total":1,"message":"linking""#);
    talk.progress("\"x\"", r#""progress":0.1"#);
    talk.pass(Duration::from_secs(60));
    talk.say(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#);
    assert_eq!(
        fates(&talk.table, 2),
        [
            "request",
            "forwarded",
            "withheld duplicate",
            "repaired token,lift,message",
            "added heartbeat",
            "answer"
        ]
    );
    let whole = one(&talk.table, 2);
    let message = |nth: usize| &whole["messages"][nth];
    assert!(message(0)["before"].as_str().unwrap().contains("\"build\""));
    assert_eq!(message(1)["after"], json!(null));
    assert_eq!(message(2)["after"], json!(null));
    assert!(message(3)["before"].as_str().unwrap().contains("\"x\""));
    assert!(message(3)["after"].as_str().unwrap().contains("\"progressToken\":\"t\""));
    assert_eq!(message(4)["before"], json!(null));
    assert!(message(4)["after"].as_str().unwrap().contains("notifications/progress"));
    let at = message(4)["at"].as_u64().unwrap();
    assert!((10_000..=60_300).contains(&at), "{at}");
    assert!(message(5)["before"].as_str().unwrap().contains("\"result\""));
    let call = &whole["call"];
    assert_eq!(call["outcome"], json!("result"));
    assert_eq!(call["withheld"], json!({"duplicate": 1}));
    assert_eq!(call["repaired"], json!({"token": 1, "lift": 1, "message": 1}));
    assert_eq!(
        (&call["received"], &call["sent"], &call["heartbeats"]),
        (&json!(3), &json!(3), &json!(1))
    );
    let took = call["ended"].as_u64().unwrap() - call["opened"].as_u64().unwrap();
    assert_eq!(took, 60_300);
    let route = &all(&talk.table)["routes"][0];
    assert_eq!(
        *route,
        json!({"route":"/r","open":1,"calls":1,"received":3,"sent":3,"heartbeats":1,
               "beats":1,"repaired":3,"withheld":1,"without_token":0,"failed":0})
    );
    assert_eq!(all(&talk.table)["routes"][1]["route"], json!("/idle"));
}

#[test]
fn each_call_of_several_gets_what_is_its_own() {
    let mut talk = Talk::new(Mode::Full);
    talk.ask(
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}},
            {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b","_meta":{"progressToken":2}}}]"#,
    );
    talk.say(
        r#"[{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":5}},
            {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":7}}]"#,
    );
    talk.say(r#"{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}"#);
    let [a, b] = &calls(&talk.table)[..] else { panic!() };
    assert_eq!((&a["progress"], &b["progress"]), (&json!("7"), &json!("5")));
    assert_eq!((&a["outcome"], &b["outcome"]), (&json!(null), &json!("error")));
    for (number, name, figure) in [(1, "\"a\"", "\"progress\":7"), (2, "\"b\"", "\"progress\":5")] {
        let whole = one(&talk.table, number);
        let said = |nth: usize| whole["messages"][nth]["before"].as_str().unwrap().to_owned();
        assert!(said(0).contains(name) && !said(0).starts_with('['), "{whole}");
        assert!(said(1).contains(figure) && !said(1).starts_with('['), "{whole}");
    }
    assert_eq!(all(&talk.table)["routes"][0]["failed"], json!(1));
    // The stream ends without an answer to the first call.
    let table = Arc::clone(&talk.table);
    drop(talk);
    assert_eq!(calls(&table)[0]["outcome"], json!("unanswered"));
    assert_eq!(all(&table)["routes"][0]["open"], json!(0));
}

#[test]
fn what_is_said_in_the_servers_place_belongs_to_the_call() {
    let mut talk = Talk::new(Mode::Full);
    talk.call(1, "a", "1");
    talk.filter.apply(talk.now, Input::Stderr("50% done".into()));
    talk.pass(Duration::from_secs(2));
    talk.filter.apply(talk.now, Input::CloseServer("it has died".into()));
    talk.drain();
    let told = fates(&talk.table, 1);
    assert_eq!(told[0], "request");
    assert_eq!(told[told.len() - 1], "added server gone", "{told:?}");
    assert_eq!(calls(&talk.table)[0]["outcome"], json!("server gone"));
}

#[test]
fn in_observe_mode_nothing_is_said_to_have_been_changed() {
    let mut talk = Talk::new(Mode::Observe);
    talk.call(1, "a", "1");
    talk.progress("9", r#""progress":3"#);
    talk.progress("1", r#""progress":1"#);
    talk.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let told = fates(&talk.table, 1);
    assert_eq!(told, ["request", "repaired token,message", "repaired lift,message", "answer"]);
    let whole = one(&talk.table, 1);
    assert_eq!(whole["call"]["observed"], json!(true));
    assert_eq!(whole["call"]["progress"], json!("1"));
    for message in whole["messages"].as_array().unwrap() {
        assert_eq!(message["after"], json!(null), "{message}");
    }
}

#[test]
fn a_session_goes_on_with_the_call_of_a_stream_that_has_closed() {
    let table = Table::new(["/r"]);
    let policy = policy(Mode::Full);
    let mut session = crate::progress::Filter::of_session(Arc::clone(&policy));
    session.open_stream(StreamId(1), StreamKind::Exchange, StreamPacing::Immediate);
    session.open_stream(StreamId(2), StreamKind::Shared, StreamPacing::Immediate);
    let mut session = FilterGuard::new(session, Arc::clone(&policy), StreamId(2));
    look_on(&table, &mut session, Scope::Session, &policy);
    let mut own = crate::progress::Filter::of_request(Arc::clone(&policy));
    own.open_stream(SOLE_STREAM, StreamKind::Exchange, StreamPacing::Immediate);
    let mut own = FilterGuard::new(own, Arc::clone(&policy), SOLE_STREAM);
    look_on(&table, &mut own, Scope::Exchange, &policy);
    let now = Instant::now();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}}"#;
    let call = Message::parse(Bytes::from(call));
    session.client_message(now, StreamId(1), &call);
    own.client_message(now, SOLE_STREAM, &call);
    // Both filters see the same call, but the table has it once.
    assert_eq!(calls(&table).len(), 1);
    session.take_over(now, &mut own, StreamId(1));
    session.apply(now, Input::CloseStream(StreamId(1), false));
    drop(own);
    assert_eq!(calls(&table)[0]["outcome"], json!(null));
    assert_eq!(all(&table)["routes"][0]["open"], json!(1));
    let say = |session: &mut FilterGuard, text: &str| {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        session.server_message(now, Origin::Stream(StreamId(2)), &message);
        while session.poll_transmit(now, StreamId(2)).is_some() {
            session.apply(now, Input::MarkWritten(StreamId(2)));
        }
    };
    say(
        &mut session,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}"#,
    );
    say(&mut session, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(fates(&table, 1), ["request", "forwarded", "answer"]);
    assert_eq!(calls(&table).len(), 1);
    assert_eq!(calls(&table)[0]["outcome"], json!("result"));
    assert_eq!(all(&table)["routes"][0]["open"], json!(0));
}

#[test]
fn secrets_are_shown_nowhere() {
    let mut talk = Talk::new(Mode::Full);
    let mut tap = TapReader::begin(&talk.table, TapFilter::default());
    talk.ask(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"password":"hunter two"},"_meta":{"progressToken":"tok-0123456789abcdef"}}}"#,
    );
    let filler = "x".repeat(4000);
    talk.progress(
        r#""tok-0123456789abcdef""#,
        r#""progress":1,"message":"Authorization: Bearer abcdef0123456789""#,
    );
    talk.say(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"password":["hunter two","{filler}"],"b":"{filler}"}}}}"#
    ));
    let mut cx = Context::from_waker(Waker::noop());
    let mut shown = vec![talk.table.json(), talk.table.call_json(1).unwrap()];
    while let Poll::Ready(more) = tap.poll(&mut cx, 100) {
        shown.push(more);
    }
    assert!(shown.len() > 4, "{shown:?}");
    let shown = shown.concat();
    assert!(!shown.contains("hunter") && !shown.contains("abcdef0123456789\""), "{shown}");
    assert!(!shown.contains("Bearer abc") && !shown.contains("xxx"), "{shown}");
    // The id or token of a request is not a secret, so it is not masked.
    assert!(shown.contains("tok-0123456789abcdef"), "{shown}");
}

#[test]
fn no_table_and_no_queue_grows_without_bound() {
    let table = Table::new(["/r"]);
    let mut looking = CallTableReader::at(&table);
    let mut tap = TapReader::begin(&table, TapFilter::default());
    let mut talks: Vec<Talk> = Vec::new();
    for _ in 0..2 {
        let mut talk = Talk::on(&table, Mode::Full);
        for id in 0..700 {
            talk.call(id, "a", &id.to_string());
        }
        talks.push(talk);
    }
    assert_eq!(calls(&table).len(), OPEN_MAX);
    assert_eq!(all(&table)["routes"][0]["open"], json!(1400));
    // Send more and longer messages than are kept of one call.
    let long = "y".repeat(3 * TEXT_MAX);
    let count = FIRST_LAST + 10;
    for figure in 1..=count {
        talks[0].progress("5", &format!(r#""progress":{figure},"message":"{long}""#));
    }
    let whole = one(&table, 6);
    assert_eq!(whole["messages"].as_array().unwrap().len(), FIRST_LAST);
    assert_eq!(whole["left_out"], json!(11));
    assert_eq!(whole["call"]["progress"], json!(count.to_string()));
    for message in whole["messages"].as_array().unwrap() {
        let before = message["before"].as_str().unwrap();
        assert!(before.len() <= TEXT_MAX + '…'.len_utf8(), "{}", before.len());
    }
    // Fill the table with messages of many calls, whose texts differ on both sides.
    for id in 10..700 {
        for figure in 1..=FIRST_LAST + 1 {
            let rest = format!(r#""progress":"{figure}%","message":"{figure}{long}""#);
            talks[0].progress(&id.to_string(), &rest);
        }
        assert!(table.bytes.load(Ordering::Relaxed) <= BYTES_MAX + (1 << 20));
    }
    // The oldest calls have lost messages to make room.
    assert!(one(&table, 6)["left_out"].as_u64().unwrap() >= 75);
    assert!(one(&table, 6)["messages"].as_array().unwrap().len() < FIRST_LAST);
    assert_eq!(one(&table, 700)["messages"].as_array().unwrap().len(), FIRST_LAST);
    let events = looking.round().unwrap();
    assert!(events.starts_with("event: routes\n"), "{}", &events[..100]);
    for talk in &mut talks {
        for id in 0..700 {
            talk.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        }
    }
    assert_eq!(calls(&table).len(), ENDED_MAX);
    assert_eq!(all(&table)["routes"][0]["open"], json!(0));
    assert_eq!(all(&table)["routes"][0]["calls"], json!(1400));
    let events = looking.round().unwrap();
    let gone = events.lines().skip_while(|line| *line != "event: gone").nth(1).unwrap();
    let gone: Vec<u64> = serde_json::from_str(gone.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(gone.len(), OPEN_MAX - ENDED_MAX);
    std::iter::from_fn(|| looking.round()).for_each(|sign| assert!(sign.starts_with("event: now")));
    // An observer that does not read gets the messages that may wait, and then the number left out.
    let mut cx = Context::from_waker(Waker::noop());
    let mut shown = String::new();
    while let Poll::Ready(more) = tap.poll(&mut cx, 1 << 20) {
        shown += &more;
    }
    assert!(shown.ends_with(" lines left out\n"));
    assert!(shown.len() < 8 << 20);
    drop((talks, tap, looking));
    for entry in table.all() {
        entry.forget();
    }
    assert_eq!(table.bytes.load(Ordering::Relaxed), 0);
    assert!(!table.taps.any());
}

/// Maximum number of messages that are kept of one call.
const FIRST_LAST: usize = 64;

#[test]
fn who_taps_sees_what_was_asked_for() {
    let table = Table::new(["/r"]);
    let mut cx = Context::from_waker(Waker::noop());
    let filter = |route: Option<&str>, tool: Option<&str>, verdict: Option<&str>| TapFilter {
        route: route.map(str::to_owned),
        tool: tool.map(str::to_owned),
        verdict: verdict.map(str::to_owned),
        json: true,
    };
    let wanted = [
        (filter(None, None, None), 8),
        (filter(Some("/r"), None, None), 8),
        (filter(Some("/q"), None, None), 0),
        (filter(None, Some("a"), None), 4),
        (filter(None, None, Some("withheld")), 1),
        (filter(None, None, Some("duplicate")), 1),
        (filter(None, None, Some("token")), 1),
        (filter(None, None, Some("repaired")), 1),
        (filter(None, None, Some("forwarded")), 3),
        (filter(None, Some("b"), Some("forwarded")), 1),
    ];
    let taps: Vec<(TapReader, usize)> = wanted
        .into_iter()
        .map(|(filter, count)| (TapReader::begin(&table, filter), count))
        .collect();
    let mut talk = Talk::on(&table, Mode::Full);
    talk.ask(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    talk.call(1, "a", "1");
    talk.progress("1", r#""progress":1,"message":"x""#);
    talk.progress("1", r#""progress":1,"message":"x""#);
    talk.progress("7", r#""progress":3,"message":"y""#);
    talk.call(2, "b", "2");
    talk.say(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    talk.say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    for (mut tap, count) in taps {
        let mut lines: Vec<Value> = Vec::new();
        while let Poll::Ready(more) = tap.poll(&mut cx, 1) {
            lines.extend(more.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
        assert_eq!(lines.len(), count, "{lines:#?}");
    }
    let mut tap = TapReader::begin(&table, TapFilter::default());
    talk.progress("7", r#""progress":4,"message":"\u001b[2J""#);
    let Poll::Ready(text) = tap.poll(&mut cx, 1) else { panic!() };
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("# 2") && lines[0].ends_with("Z /r call 1 a"), "{text}");
    assert!(lines[1].starts_with("< {\"jsonrpc\"") && lines[1].contains("[2J"), "{text}");
    assert_eq!(lines[2], "    repaired: token");
    assert!(lines[3].starts_with("= {\"jsonrpc\""), "{text}");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn a_report_without_a_figure_shows_its_words_and_no_figure() {
    let mut talk = Talk::new(Mode::Full);
    let last = |talk: &Talk| calls(&talk.table).pop().unwrap();
    let shown = |talk: &Talk| ["progress", "total", "message"].map(|key| last(talk)[key].clone());
    talk.call(1, "build", "1");
    talk.progress("1", r#""message":"starting""#);
    assert_eq!(shown(&talk), [json!(null), json!(null), json!("starting")]);
    talk.progress("1", r#""progress":3,"total":10,"message":"three""#);
    assert_eq!(shown(&talk), [json!("3"), json!("10"), json!("three")]);
    // The client gets the smallest step above the repeated value; an observer sees the value that the server gave.
    talk.progress("1", r#""progress":3,"total":10,"message":"still three""#);
    assert_eq!(shown(&talk), [json!("3"), json!("10"), json!("still three")]);
    talk.pass(Duration::from_secs(11));
    assert_eq!((&last(&talk)["heartbeats"], &shown(&talk)[0]), (&json!(1), &json!("3")));
}

#[test]
fn a_quiet_table_is_small_until_somebody_looks_on() {
    let table = Table::quiet("s");
    let work = |talk: &mut Talk, calls: u32| {
        let long = "x".repeat(4000);
        for id in 0..calls {
            talk.call(id, "build", &id.to_string());
            let report = |figure| format!(r#""progress":{figure},"message":"{long}""#);
            (0..20).for_each(|figure| talk.progress(&id.to_string(), &report(figure)));
            talk.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        }
    };
    let mut talk = Talk::on(&table, Mode::Full);
    work(&mut talk, 30);
    let bytes = table.bytes.load(Ordering::Relaxed);
    assert!(calls(&table).len() == QUIET_ENDED_MAX && bytes <= QUIET_BYTES_MAX, "{bytes}");
    // Includes 120 bytes of names for each entry, and the 32 ended calls that a conversation remembers.
    let entries = QUIET_OPEN_MAX + QUIET_ENDED_MAX + 32;
    assert!(entries * (size_of::<CallEntry>() + 120) + QUIET_BYTES_MAX < 100_000);

    let look = CallTableReader::at(&table);
    work(&mut talk, 30);
    let bytes = table.bytes.load(Ordering::Relaxed);
    assert!(calls(&table).len() == QUIET_ENDED_MAX + 30 && bytes > QUIET_BYTES_MAX, "{bytes}");
    drop(look);
    let bytes = table.bytes.load(Ordering::Relaxed);
    assert!(calls(&table).len() == QUIET_ENDED_MAX && bytes <= QUIET_BYTES_MAX, "{bytes}");
}

#[test]
fn a_server_is_known_by_the_name_that_it_gives_itself() {
    let mut talk = Talk::new(Mode::Full);
    talk.ask(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    talk.say(r#"{"jsonrpc":"2.0","id":0,"result":{"serverInfo":{"name":"every\u001bthing"}}}"#);
    let servers = ["everything".into(), json!(null)];
    assert_eq!([0, 1].map(|at| all(&talk.table)["routes"][at]["server"].clone()), servers);
}
