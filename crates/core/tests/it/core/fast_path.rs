//! The fast paths of progress have the same results as the ordinary path.

use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost_core::progress::dialect;
use milepost_core::progress::input::Input;
use milepost_core::progress::{
    ArrivedMessage, FastPath, Filter, FilterEvent, Form, Origin, Policy, Repair, StreamId,
    StreamKind, StreamPacing, Verdict,
};
use milepost_core::protocol::jsonrpc::{Framing, Key, Message};
use proptest::prelude::*;

const OWN: StreamId = StreamId(0);

/// One call on its own stream, and the messages that its client gets.
struct Way {
    filter: Filter,
    now: Instant,
    short: bool,
    told: Vec<Bytes>,
    events: Vec<String>,
    /// Number of messages that were forwarded unchanged on a fast path.
    taken: usize,
    /// Number of messages that were repaired or kept on a fast path.
    repaired: usize,
}

impl Way {
    fn new(start: Instant, short: bool, token: &str) -> Self {
        Self::of(Filter::new(Policy::default()), start, short, token)
    }

    fn of(filter: Filter, start: Instant, short: bool, token: &str) -> Self {
        let (told, events) = (Vec::new(), Vec::new());
        let mut way = Self { filter, now: start, short, told, events, taken: 0, repaired: 0 };
        way.begin(token);
        way
    }

    fn begin(&mut self, token: &str) {
        self.filter.open_stream(OWN, StreamKind::Exchange, StreamPacing::Immediate);
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"work","_meta":{{"progressToken":{token}}}}}}}"#
        );
        self.filter.client_message(self.now, OWN, &Message::parse(request.into()));
    }

    fn hear(&mut self, text: &str, after: Duration) {
        // Messages that become due in the meantime are written when they are due.
        let until = self.now + after;
        while let Some(at) = self.filter.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.drain();
        }
        self.now = until;
        self.drain();
        let frame = Bytes::from(format!("data: {text}\n\n"));
        let text = frame.slice(6..6 + text.len());
        if !self.takes(&text, &frame) {
            self.active_elsewhere(&text);
            let message = Message::parse(text).framed(Framing::Within(frame));
            self.filter.server_message(self.now, Origin::Stream(OWN), &message);
        }
        self.drain();
    }

    /// Whether a message takes a fast path.
    fn takes(&mut self, text: &Bytes, frame: &Bytes) -> bool {
        if !self.short {
            return false;
        }
        let is_elsewhere = |token: &Key| *token == elsewhere();
        let arrived = ArrivedMessage { text, frame, source: frame };
        match self.filter.intake_mut().fast_repair(self.now, OWN, arrived, is_elsewhere) {
            FastPath::NotTaken => return false,
            FastPath::Unchanged => {
                self.taken += 1;
                self.told.push(frame.clone());
            }
            FastPath::Rewritten => {
                self.repaired += 1;
                self.told.push(Bytes::copy_from_slice(self.filter.intake().rewritten()));
            }
            FastPath::Kept => self.repaired += 1,
        }
        true
    }

    /// Tells the filter that the message's token is active in another session, as its shell does.
    fn active_elsewhere(&mut self, text: &Bytes) {
        let named = self
            .filter
            .intake_mut()
            .tokens_named(Origin::Stream(OWN), &Message::parse(text.clone()));
        if named.contains(&elsewhere()) {
            self.filter.handle(self.now, &Input::MarkElsewhere(vec![elsewhere()]));
        }
    }

    fn drain(&mut self) {
        while let Some(transmit) = self.filter.poll_transmit(self.now, OWN) {
            let bytes = transmit.payload.to_bytes();
            // A message without its total stays in its frame here, but the fast path writes only the message.
            let is_cut = *transmit.payload.form() == Form::AsCame;
            let is_cut = is_cut && transmit.payload.pieces().count() > 1;
            self.told.push(if is_cut { bytes.slice(6..bytes.len() - 2) } else { bytes });
        }
        self.filter.written(self.now, OWN);
        let events = std::iter::from_fn(|| self.filter.poll_event());
        self.events.extend(events.map(|event| format!("{event:?}")));
    }
}

/// A token that is active in another session.
fn elsewhere() -> Key {
    Key::read(&Bytes::from_static(b"8")).unwrap()
}

/// Plays messages on both paths, and compares the results. Returns the number of messages that a fast path has
/// repaired.
fn check_with(make: impl Fn() -> Filter, token: &str, messages: &[(String, u64)]) -> usize {
    let start = Instant::now();
    let mut short = Way::of(make(), start, true, token);
    let mut long = Way::of(make(), start, false, token);
    for (text, after) in messages {
        short.hear(text, Duration::from_millis(*after));
        long.hear(text, Duration::from_millis(*after));
        assert_eq!(short.told, long.told, "after {text}");
        assert_eq!(short.events, long.events, "after {text}");
    }
    short.repaired
}

/// Returns the default policy without thinning.
fn every() -> Policy {
    let mut policy = Policy::default();
    policy.call.min_interval = Duration::ZERO;
    policy
}

fn check(token: &str, messages: &[(String, u64)]) -> usize {
    let start = Instant::now();
    let mut way = Way::new(start, true, token);
    for (text, after) in messages {
        way.hear(text, Duration::from_millis(*after));
    }
    check_with(|| Filter::new(Policy::default()), token, messages);
    way.taken
}

#[test]
fn the_usual_notification_takes_the_short_way() {
    let usual = r#"{"method":"notifications/progress","params":{"progressToken":7,"progress":1,"total":10,"message":"caf\u00e9"},"jsonrpc":"2.0"}"#;
    assert_eq!(check("7", &[(usual.replace("\\u00e9", "é"), 0)]), 1);
    assert_eq!(check("7", &[(usual.to_owned(), 0)]), 0);
    let spaced = r#" { "jsonrpc" : "2.0" , "method" : "notifications/progress" , "params" : { "progressToken" : "a" , "progress" : -0.5 } } "#;
    assert_eq!(check("\"a\"", &[(spaced.to_owned(), 0)]), 1);
    assert_eq!(check("\"b\"", &[(spaced.to_owned(), 0)]), 0);
}

#[test]
fn progress_that_needs_a_repair_takes_the_short_way_where_it_has_no_other_members() {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{P}}"#;
    let params = [
        r#""progressToken":"mine","progress":1,"total":10"#,
        r#""progressToken":7,"message":"2 of 10 files""#,
        r#""progress":1"#,
        r#""progressToken":7,"progress":1"#,
        r#""progressToken":7,"progress":1"#,
        r#""message":"no figure""#,
    ];
    let messages: Vec<_> = params.map(|params| (text.replace('P', params), 20)).into();
    let repaired = |make: fn() -> Filter| check_with(make, "7", &messages);
    assert_eq!(repaired(|| Filter::new(every())), 6);
    assert_eq!(repaired(|| Filter::new(Policy::default())), 6);
    // An unknown token may belong to another request of the session, so the filter of a request does not repair it.
    assert_eq!(repaired(|| Filter::of_request(every())), 5);
    let other = [(text.replace('P', r#""progressToken":8,"progress":1"#), 0)];
    assert_eq!(check_with(|| Filter::new(every()), "7", &other), 0);
}

#[test]
fn a_total_that_is_left_out_takes_the_short_way_and_all_other_bytes_stay() {
    let notification = |params: &str| {
        let text = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{P}}"#;
        text.replace('P', params)
    };
    let cases = [
        (r#""progressToken":7,"progress":1,"total":0"#, r#""progressToken":7,"progress":1"#),
        (r#""total": 1 , "progressToken":7,"progress":2"#, r#""progressToken":7,"progress":2"#),
        (
            r#""progressToken":7 , "total":-3, "progress":3.50,"message":"m""#,
            r#""progressToken":7 , "progress":3.50,"message":"m""#,
        ),
        (
            r#""progressToken":7,"progress":4,"total":4"#,
            r#""progressToken":7,"progress":4,"total":4"#,
        ),
    ];
    let messages: Vec<_> = cases.map(|(params, _)| (notification(params), 20)).into();
    assert_eq!(check("7", &messages), 1);
    assert_eq!(check_with(|| Filter::new(Policy::default()), "7", &messages), 3);
    let mut way = Way::new(Instant::now(), true, "7");
    for (params, told) in cases {
        way.hear(&notification(params), Duration::ZERO);
        let last = String::from_utf8(way.told.last().unwrap().to_vec()).unwrap();
        assert!(last.contains(&notification(told)), "{last}");
    }
    let mut policy = Policy::default();
    policy.call.answers.total = false;
    let mut way = Way::of(Filter::new(policy), Instant::now(), true, "7");
    way.hear(&notification(cases[0].0), Duration::ZERO);
    assert_eq!(way.taken, 1);
}

#[test]
fn log_messages_take_the_short_way_unless_they_are_progress() {
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"1 of 2"}}"#;
    let taken = |filter: Filter| {
        let mut way = Way::of(filter, Instant::now(), true, "7");
        way.hear(log, Duration::ZERO);
        (way.taken, way.told.len())
    };
    assert_eq!(taken(Filter::new(Policy::default())), (1, 1));
    let mut policy = Policy::default();
    policy.call.dialects.extend(dialect::named("log"));
    assert_eq!(taken(Filter::new(policy)), (0, 2));
}

#[test]
fn a_tool_that_goes_by_other_dialects_does_not_take_it() {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
    for (tool, taken) in [("work", false), ("other", true)] {
        let mut policy = Policy::default();
        policy.tools.entry(tool.to_owned()).or_default().dialects.clear();
        let mut way = Way::of(Filter::new(policy), Instant::now(), true, "7");
        way.hear(text, Duration::ZERO);
        assert_eq!((way.taken == 1, way.told.len()), (taken, 1));
    }
}

#[test]
fn a_message_with_a_mark_does_not_take_it() {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
    let mut way = Way::new(Instant::now(), true, "7");
    way.filter.handle(way.now, &Input::MarkEventName);
    let progress = Input::ServerProgress(OWN, Bytes::from_static(text.as_bytes()));
    way.filter.handle(way.now, &progress);
    let mut told = Vec::new();
    while let Some(transmit) = way.filter.poll_transmit(way.now, OWN) {
        told.push(transmit.payload.to_bytes());
    }
    assert_eq!(told, [text]);
    let events = std::iter::from_fn(|| way.filter.poll_event());
    let verdicts = events.filter_map(|event| match event {
        FilterEvent::Message { verdict, .. } => Some(verdict),
        _ => None,
    });
    let marked = Verdict::Repaired([Repair::EventName].into_iter().collect());
    assert_eq!(verdicts.collect::<Vec<_>>(), [marked]);
    // The mark was only for one message.
    way.hear(&text.replace("\"progress\":1", "\"progress\":2"), Duration::ZERO);
    assert_eq!(way.taken, 1);
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0_i32..20).prop_map(|number| number.to_string()),
        1 => prop::sample::select(vec![
            "1.5", "0", "-1", "1e3", "1e999", "NaN", "null", "\"3\"", "true", "01", "1.", ".5", "-", "9007199254740993",
            "{}", "[1]",
        ])
        .prop_map(str::to_owned),
    ]
}

fn words() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        r#""m""#,
        r#""""#,
        r#""a\"b""#,
        r#""\n""#,
        r#""\ud83d""#,
        r#""é""#,
        "null",
        "5",
        "\"\t\"",
        "\"a",
        r#""\x""#,
    ])
    .prop_map(str::to_owned)
}

fn notification() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec!["7", "7.0", "\"7\"", "8", "\"mine\"", "1", "null", "7 "]);
    let member = prop_oneof![
        6 => token.prop_map(|token| format!(r#""progressToken":{token}"#)),
        6 => value().prop_map(|value| format!(r#""progress":{value}"#)),
        3 => value().prop_map(|value| format!(r#""total":{value}"#)),
        3 => words().prop_map(|words| format!(r#""message":{words}"#)),
        1 => Just(r#""_meta":{}"#.to_owned()),
        1 => Just(r#""extra":1"#.to_owned()),
        1 => Just(r#""isFinal":true"#.to_owned()),
    ];
    let usual = (value(), prop::option::of(value()), prop::option::of(words())).prop_map(
        |(value, total, words)| {
            let mut text = format!(r#""progressToken":7,"progress":{value}"#);
            total.iter().for_each(|total| text += &format!(r#","total":{total}"#));
            words.iter().for_each(|words| text += &format!(r#","message":{words}"#));
            text
        },
    );
    let params = prop_oneof![
        3 => usual,
        2 => prop::collection::vec(member, 0..5).prop_map(|members| members.join(",")),
    ];
    let shape = prop::sample::select(vec![
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{P}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{P}}"#,
        r#"{"method":"notifications/progress","params":{P},"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{P}} x"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{P},}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{P},"id":1}"#,
        r#"{"jsonrpc":"1.0","method":"notifications/progress","params":{P}}"#,
        r#"{"method":"notifications/progress","params":{P}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{P}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"m"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","id":2,"params":{"level":"info","data":"m"}}"#,
    ]);
    (shape, params).prop_map(|(shape, params)| shape.replace('P', &params))
}

proptest! {
    #[test]
    fn both_ways_tell_the_same(
        messages in prop::collection::vec(
            (notification(), prop::sample::select(vec![0, 0, 0, 20, 150, 1200, 6000])), 1..12),
    ) {
        check_with(|| Filter::new(Policy::default()), "7", &messages);
        check_with(|| Filter::new(every()), "7", &messages);
        check_with(|| Filter::of_request(every()), "7", &messages);
    }
}
