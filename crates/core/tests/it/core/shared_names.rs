//! If clients share a server, a message that servers may read in different ways is not sent to any, and names cannot be
//! guessed.

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;
use milepost_core::progress::input::{FilterScope, Input};
use milepost_core::progress::{
    BATCH_MAX, Filter, FilterEvent, NameKey, Policy, RefusalRule, StreamId, StreamKind,
    StreamPacing,
};
use milepost_core::protocol::jsonrpc::Message;
use serde_json::Value;

const CLIENT: StreamId = StreamId(1);

struct Shared {
    filter: Filter,
    now: Instant,
}

impl Shared {
    fn new(policy: Policy) -> Self {
        let (now, mut filter) =
            (Instant::now(), Filter::new(Policy { id_mapping: true, ..policy }));
        let key = NameKey::new(*b"sixteen bytes...");
        filter.handle(now, &Input::Begin(FilterScope::Shared(Some(key))));
        filter.open_stream(CLIENT, StreamKind::Exchange, StreamPacing::Immediate);
        Self { filter, now }
    }

    /// Passes a client's message to the filter. Returns the request that the server gets.
    fn client(&mut self, text: &str) -> String {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes()));
        let sent = self.filter.client_message(self.now, CLIENT, &message).to_bytes();
        String::from_utf8(sent.to_vec()).unwrap()
    }

    fn told(&mut self) -> Vec<Value> {
        let told = std::iter::from_fn(|| self.filter.poll_transmit(self.now, CLIENT));
        told.map(|one| serde_json::from_slice(&one.payload.to_bytes()).unwrap()).collect()
    }

    fn refusals(&mut self) -> usize {
        let events = std::iter::from_fn(|| self.filter.poll_event());
        events.filter(|event| matches!(event, FilterEvent::Refused(_))).count()
    }
}

/// Messages in which some reader finds another client's name, with the member that is reported. The readers are: in Go
/// (names without their case, the last member counts), in C (names end at a NUL), and one that uses the first of two
/// members.
const DIFFERENTIALS: [(&str, &str); 40] = [
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","Method":"notifications/cancelled"}"#, "method"),
    (r#"{"jsonrpc":"2.0","id":7,"METHOD":"ping","method":"a"}"#, "method"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","method\u0000":"ping"}"#, "method"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","\u004dethod":"ping"}"#, "method"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","method":"ping"}"#, "method"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","m\u0065thod":"ping"}"#, "method"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","ID":99}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":7,"Id":99,"method":"a"}"#, "id"),
    (r#"{"jsonrpc":"2.0","iD":99,"id":7,"method":"a"}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","ıd":99}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","İd":99}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","id\u0000x":99}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":7,"id":99,"method":"a"}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":99,"\u0069d":7,"method":"a"}"#, "id"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{},"Params":{"requestId":99}}"#, "params"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{},"paramſ":{"requestId":99}}"#, "params"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","PARAM\u017f":{"requestId":99}}"#, "params"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{},"params":{"x":1}}"#, "params"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","Result":{}}"#, "result"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","reſult":{}}"#, "result"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","ERROR":{"code":1}}"#, "error"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","JSONRPC":"1.0"}"#, "jsonrpc"),
    (r#"{"jsonrpc":"1.0","id":7,"method":"a","jsonrpc":"2.0"}"#, "jsonrpc"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_Meta":{"progressToken":99}}}"#, "_meta"),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{},"_META":{"progressToken":9}}}"#,
        "_meta",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"progressToken":9},"_meta":{}}}"#,
        "_meta",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{},"\u005fmeta":{"x":1}}}"#,
        "_meta",
    ),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"requestID":99}}"#, "requestId"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"requeſtId":99}}"#, "requestId"),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"requestId":1,"requestId":99}}"#,
        "requestId",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"notifications/progress","params":{"ProgressToken":9}}"#,
        "progressToken",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"notifications/progress","params":{"progressToken":1,"progressToken":9}}"#,
        "progressToken",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"progresstoken":99}}}"#,
        "progressToken",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"progressToken":1,"ProgressToken":9}}}"#,
        "progressToken",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"progreſsToken":99}}}"#,
        "progressToken",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"progressTo\u212aen":99}}}"#,
        "progressToken",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"progressToken\u0000":99}}}"#,
        "progressToken",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"progressToken":9,"progressToken":1}}}"#,
        "progressToken",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"progress\u0054oken":9,"progressToken":1}}}"#,
        "progressToken",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"PROGRESS\u0054OKEN":99}}}"#,
        "progressToken",
    ),
];

#[test]
fn what_servers_may_read_in_two_ways_reaches_none() {
    for (text, member) in DIFFERENTIALS {
        let mut shared = Shared::new(Policy::default());
        assert_eq!(shared.client(text), "", "{text}");
        let told = shared.told();
        assert_eq!(told.len(), 1, "{text}");
        assert_eq!(told[0]["error"]["code"], -32600, "{text}");
        let why = told[0]["error"]["message"].as_str().unwrap();
        assert!(why.contains(&format!("{member:?}")), "{text}: {why}");
        assert_eq!((shared.refusals(), shared.filter.open_calls()), (1, 0), "{text}");
    }
}

#[test]
fn other_members_are_the_business_of_the_client() {
    for text in [
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"Name":1,"arguments":{"Method":1,"ID":2,"_Meta":3}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"a","method ":1,"ids":2,"x":{"id":1,"id":2}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"ProgressToken":1,"_meta":{"x/progresstoken":1}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"a","params":[{"requestid":1}]}"#,
    ] {
        let mut shared = Shared::new(Policy::default());
        let sent = shared.client(text);
        let id = &serde_json::from_str::<Value>(&sent).unwrap()["id"];
        assert_eq!(sent, text.replacen("7", &id.to_string(), 1));
        assert!(shared.told().is_empty() && shared.refusals() == 0, "{text}");
    }
}

#[test]
fn notifications_are_refused_without_an_answer() {
    let mut shared = Shared::new(Policy::default());
    let text = r#"{"jsonrpc":"2.0","method":"a","Method":"notifications/cancelled"}"#;
    assert_eq!((shared.client(text), shared.told(), shared.refusals()), (String::new(), vec![], 1));
}

#[test]
fn names_are_integers_that_nobody_can_guess() {
    let mut shared = Shared::new(Policy::default());
    let mut names = BTreeSet::new();
    for id in 0..1000 {
        let sent = shared.client(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"a","params":{{"_meta":{{"progressToken":{id}}}}}}}"#
        ));
        let sent: Value = serde_json::from_str(&sent).unwrap();
        let name = sent["id"].as_i64().unwrap();
        assert_eq!(sent["params"]["_meta"]["progressToken"], name);
        assert!((1..=i64::from(i32::MAX)).contains(&name));
        names.insert(name);
    }
    assert_eq!(names.len(), 1000);
    let spread = names.iter().zip(names.iter().skip(1)).filter(|(one, next)| *next - *one > 1000);
    assert!(spread.count() > 900);
}

#[test]
fn a_token_in_the_arguments_is_exchanged_too() {
    let mut policy = Policy::default();
    policy.call.ask.token_in_arguments = true;
    let call = |meta: &str, arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"a"{meta},"arguments":{{"_meta":{arguments}}}}}}}"#
        )
    };
    for (meta, arguments) in [
        (r#","_meta":{"progressToken":"mine"}"#, r#"{"progressToken":99}"#),
        (r#","_meta":{"progressToken":"mine"}"#, r#"{"progressToken":"99"}"#),
        (r#","_meta":{"progressToken":"mine"}"#, r#"{"progressToken":[99]}"#),
        ("", r#"{"progressToken":"mine"}"#),
    ] {
        let mut shared = Shared::new(policy.clone());
        let sent = shared.client(&call(meta, arguments));
        let read: Value = serde_json::from_str(&sent).unwrap();
        let name = &read["id"];
        let copy = &read["params"]["arguments"]["_meta"]["progressToken"];
        assert_eq!(*copy, name.to_string(), "{sent}");
        let server = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{name}","progress":1}}}}"#
        );
        let message = Message::parse(server.into());
        shared.filter.server_message(shared.now, milepost_core::progress::Origin::Shared, &message);
        let told = shared.told();
        assert_eq!(told.len(), 1, "{arguments}");
        assert_eq!(told[0]["params"]["progressToken"], "mine");
    }
    let mut shared = Shared::new(policy);
    let twice = call("", r#"{"progressToken":1,"ProgressToken":99}"#);
    assert_eq!((shared.client(&twice), shared.refusals()), (String::new(), 1));
}

fn batch(count: usize) -> String {
    let one = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    format!("[{}]", (0..count).map(one).collect::<Vec<_>>().join(","))
}

#[test]
fn a_long_batch_is_refused_where_names_are_ours() {
    let mut shared = Shared::new(Policy::default());
    assert_eq!(shared.client(&batch(BATCH_MAX + 1)), "");
    let told = shared.told();
    assert_eq!((told.len(), &told[0]["error"]["code"]), (1, &Value::from(-32600)));
    let events = std::iter::from_fn(|| shared.filter.poll_event());
    let refused = events.filter(|event| *event == FilterEvent::Refused(RefusalRule::LongBatch));
    assert_eq!(refused.count(), 1);
    assert_ne!(shared.client(&batch(BATCH_MAX)), "");
}

/// A batch of this size must not be slow, although every answer is compared with requests in other spellings of its id.
#[test]
fn a_long_batch_passes_unread_and_its_answers_too() {
    const COUNT: usize = 90_000;
    let now = Instant::now();
    let mut filter = Filter::new(Policy::default());
    filter.open_stream(CLIENT, StreamKind::Shared, StreamPacing::Immediate);
    let text = Bytes::from(batch(COUNT));
    let sent = filter.client_message(now, CLIENT, &Message::parse(text.clone()));
    assert_eq!(sent.to_bytes(), text);
    assert_eq!(filter.open_calls(), 0);
    let mut told = 0;
    for id in 0..COUNT {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#);
        let message = Message::parse(answer.into());
        filter.server_message(now, milepost_core::progress::Origin::Shared, &message);
        while filter.poll_transmit(now, CLIENT).is_some() {
            told += 1;
        }
        while filter.poll_event().is_some() {}
    }
    assert_eq!(told, COUNT);
    println!("{COUNT} elements and answers: {:?}", now.elapsed());
}
