//! Compares readers of JSON-RPC messages with other readers of the same text. The functions accept any bytes, and panic
//! if two readers disagree.

use std::fmt;
use std::time::Instant;

use bytes::Bytes;
use milepost_core::progress::input::{FilterScope, Input};
use milepost_core::progress::{
    Filter, NameKey, Origin, Policy, StreamId, StreamKind, StreamPacing,
};
use milepost_core::protocol::jsonrpc::{AmbiguousMember, Kind, Message, Scan};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::codec::cut_input::{Cut, cut};

const ENVELOPE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// The members of an object as `serde_json` reads them: all of them, in their order.
struct Object {
    members: Vec<(String, Box<RawValue>)>,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Object;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object { members })
            }
        }
        reader.deserialize_map(All)
    }
}

impl Object {
    fn read(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Returns the last value of a name, which is the value that most readers use.
    fn last(&self, name: &str) -> Option<&str> {
        self.members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.get())
    }

    /// Returns the number of members that some reader may take for `name`: a reader that ignores case as Go does, or
    /// one that ends names at a NUL.
    fn taken_for(&self, name: &str) -> usize {
        let folded = |key: &str| -> String {
            let key = key.split('\0').next().unwrap_or_default().chars();
            let key = key.map(|letter| match letter {
                '\u{212a}' => 'k',
                '\u{17f}' => 's',
                _ => letter.to_ascii_lowercase(),
            });
            key.collect()
        };
        self.members.iter().filter(|(key, _)| folded(key) == folded(name)).count()
    }

    fn names_each_once(&self) -> bool {
        let mut names: Vec<&str> = self.members.iter().map(|(key, _)| key.as_str()).collect();
        names.sort_unstable();
        names.windows(2).all(|pair| pair[0] != pair[1])
    }
}

/// Reads one JSON text, divided as [`cut`] says. Checks that the result is the same as that of `serde_json`, however
/// the text is divided, and that readers in Go, C and Python agree on a message that is called unambiguous.
pub(crate) fn json(data: &[u8]) {
    let Some(Cut { input, pieces, .. }) = cut(data) else { return };
    let (whole, in_pieces) = (scan(&[input]), scan(&pieces));
    assert_eq!(whole.kind(), in_pieces.kind());
    assert_eq!(whole.id(), in_pieces.id());
    assert_eq!(whole.id_place(), in_pieces.id_place());
    assert_eq!(whole.body(), in_pieces.body());
    assert_eq!(whole.method(), in_pieces.method());

    let message = Message::parse(Bytes::copy_from_slice(input));
    for part in message.elements().chain(message.apart()) {
        assert!(part.raw().len() <= input.len());
    }
    let ambiguous =
        [false, true].map(|in_arguments| AmbiguousMember::of(&message, in_arguments))[0];
    let Some(object) = Object::read(input) else { return };
    let read = [message.id(), message.params(), message.result(), message.error()];
    for (name, read) in ["id", "params", "result", "error"].iter().zip(read) {
        assert_eq!(read.as_deref(), object.last(name).map(str::as_bytes), "{name}");
    }
    if object.names_each_once() {
        assert_eq!(whole.id(), message.id_key());
        assert!(whole.is_whole());
    }
    if ambiguous.is_none() {
        for name in ENVELOPE {
            assert!(object.taken_for(name) < 2, "two members are taken for {name}");
        }
        let Some(params) = object.last("params").and_then(|text| Object::read(text.as_bytes()))
        else {
            return;
        };
        for name in ["_meta", "requestId"] {
            assert!(params.taken_for(name) < 2, "two members of params are taken for {name}");
        }
        let meta = params.last("_meta").and_then(|text| Object::read(text.as_bytes()));
        assert!(meta.is_none_or(|meta| meta.taken_for("progressToken") < 2));
    }
}

fn scan(pieces: &[&[u8]]) -> Scan {
    let mut scan = Scan::default();
    pieces.iter().for_each(|piece| scan.feed(piece));
    scan
}

/// The members in which the message for the server may differ from the client's message.
const NAMES: [&str; 3] = ["id", "requestId", "progressToken"];

/// Reads messages of a client that shares its server, one on each line. Checks that the server gets the client's
/// messages except for names, and that an answer returns with the client's own spelling of its id.
pub(crate) fn splice(data: &[u8]) {
    const CLIENT: StreamId = StreamId(1);
    let now = Instant::now();
    let mut filter = Filter::new(Policy { id_mapping: true, ..Policy::default() });
    let key = NameKey::new(*b"sixteen bytes...");
    filter.handle(now, &Input::Begin(FilterScope::Shared(Some(key))));
    filter.open_stream(CLIENT, StreamKind::Exchange, StreamPacing::Immediate);
    let told =
        |filter: &mut Filter| std::iter::from_fn(|| filter.poll_transmit(now, CLIENT)).last();
    for line in data.split(|&byte| byte == b'\n').take(16) {
        let message = Message::parse(Bytes::copy_from_slice(line));
        let sent = filter.client_message(now, CLIENT, &message).to_bytes();
        let Some(before) = Object::read(line).filter(|_| !sent.is_empty()) else { continue };
        let _ = told(&mut filter);
        let after = Object::read(&sent).unwrap_or_else(|| panic!("{sent:?} is no object any more"));
        assert_alike(&before, &after, 3);
        if message.kind() != Kind::Request || message.id_key().is_none() {
            continue;
        }
        let id = after.last("id").unwrap_or_default();
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        filter.server_message(now, Origin::Shared, &Message::parse(Bytes::from(answer)));
        let answer = told(&mut filter).map(|transmit| transmit.payload.to_bytes());
        let answer = answer.unwrap_or_else(|| panic!("no answer to {message:?}"));
        let answer = Object::read(&answer).and_then(|answer| answer.last("id").map(str::to_owned));
        assert_eq!(answer.as_deref(), before.last("id"));
    }
}

/// Asserts that two objects have the same members except for names, down to a depth of `depth` objects.
fn assert_alike(before: &Object, after: &Object, depth: usize) {
    let keys = |object: &Object| -> Vec<String> {
        object.members.iter().map(|(key, _)| key.clone()).collect()
    };
    assert_eq!(keys(before), keys(after));
    for ((key, old), (_, new)) in before.members.iter().zip(&after.members) {
        let (old, new) = (old.get(), new.get());
        if old == new || NAMES.contains(&key.as_str()) {
            continue;
        }
        let objects = Object::read(old.as_bytes()).zip(Object::read(new.as_bytes()));
        let (old, new) = objects
            .filter(|_| depth > 1)
            .unwrap_or_else(|| panic!("{key}: {old} has become {new}"));
        assert_alike(&old, &new, depth - 1);
    }
}
