//! The short way of plain progress says the same as the long one.

use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost::progress::input::Input;
use milepost::progress::{
    Filter, FilterEvent, Origin, Policy, Repair, StreamId, StreamKind, StreamPacing, Verdict,
};
use milepost::protocol::jsonrpc::Message;
use proptest::prelude::*;

const OWN: StreamId = StreamId(0);

/// One call on a stream of its own, and what its client is told.
struct Way {
    filter: Filter,
    now: Instant,
    short: bool,
    told: Vec<Bytes>,
    taken: usize,
}

impl Way {
    fn new(start: Instant, short: bool, token: &str) -> Self {
        let filter = Filter::new(Policy::default());
        let mut way = Self { filter, now: start, short, told: Vec::new(), taken: 0 };
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
        // Whatever is due by itself is told when it is due.
        let until = self.now + after;
        while let Some(at) = self.filter.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.drain();
        }
        self.now = until;
        self.drain();
        if self.short && self.filter.fast_path(self.now, OWN, text.as_bytes()) {
            self.taken += 1;
            self.told.push(Bytes::copy_from_slice(text.as_bytes()));
        } else {
            let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
            self.filter.server_message(self.now, Origin::Stream(OWN), &message);
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(transmit) = self.filter.poll_transmit(self.now, OWN) {
            self.told.push(transmit.payload.to_bytes());
        }
        self.filter.written(self.now, OWN);
        while self.filter.poll_event().is_some() {}
    }
}

fn check(token: &str, messages: &[(String, u64)]) -> usize {
    let start = Instant::now();
    let mut short = Way::new(start, true, token);
    let mut long = Way::new(start, false, token);
    for (text, after) in messages {
        short.hear(text, Duration::from_millis(*after));
        long.hear(text, Duration::from_millis(*after));
        assert_eq!(short.told, long.told, "after {text}");
    }
    short.taken
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
fn a_tool_that_goes_by_other_dialects_does_not_take_it() {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
    for (tool, taken) in [("work", false), ("other", true)] {
        let mut policy = Policy::default();
        policy.tools.entry(tool.to_owned()).or_default().dialects.clear();
        let mut way = Way { filter: Filter::new(policy), ..Way::new(Instant::now(), true, "7") };
        way.begin("7");
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
    // The next one has no mark.
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
    let token = prop::sample::select(vec!["7", "7.0", "\"7\"", "8", "null", "7 "]);
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
        1 => prop::collection::vec(member, 0..5).prop_map(|members| members.join(",")),
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
    ]);
    (shape, params).prop_map(|(shape, params)| shape.replace('P', &params))
}

proptest! {
    #[test]
    fn both_ways_tell_the_same(
        messages in prop::collection::vec(
            (notification(), prop::sample::select(vec![0, 0, 0, 20, 150, 1200, 6000])), 1..12),
    ) {
        check("7", &messages);
    }
}
