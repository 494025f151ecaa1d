//! The signature of a call: two calls with equal signatures ask for the same work.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::protocol::json;

/// The longest arguments, in bytes, that are compared. A call with longer arguments joins no other call.
const ARGUMENTS_MAX: usize = 64 << 10;

/// The largest integer that all readers of JSON keep exactly. A call with a larger number joins no other call.
const EXACT_MAX: u64 = 1 << 53;

/// A tool and its arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Signature {
    pub(crate) tool: String,
    arguments: Value,
}

impl Signature {
    /// The signature of a `tools/call` with these parameters, without the members of the arguments that
    /// `ignore` names. `None` if the arguments cannot be compared safely: they are longer than
    /// [`ARGUMENTS_MAX`], repeat a member, are no valid JSON, or have a number that readers round.
    pub(crate) fn read(tool: &str, params: &Bytes, ignore: &[String]) -> Option<Self> {
        let text = json::member(params, "arguments").unwrap_or_else(|| Bytes::from_static(b"{}"));
        if text.len() > ARGUMENTS_MAX {
            return None;
        }
        let Unique(mut arguments) = serde_json::from_slice(&text).ok()?;
        ignore.iter().for_each(|pointer| remove(&mut arguments, pointer));
        Some(Self { tool: tool.to_owned(), arguments })
    }
}

/// Removes the member that a JSON Pointer names.
fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    let name = name.replace("~1", "/").replace("~0", "~");
    if let Some(Value::Object(members)) = value.pointer_mut(parent) {
        members.remove(&name);
    }
}

/// A value whose objects have each member once, and whose numbers every reader reads alike.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UniqueReader)
    }
}

struct UniqueReader;

impl<'de> Visitor<'de> for UniqueReader {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that every reader reads alike")
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Unique, E> {
        let exact = value <= EXACT_MAX;
        exact.then(|| Unique(value.into())).ok_or_else(|| E::custom("a number that readers round"))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Unique, E> {
        let exact = value.unsigned_abs() <= EXACT_MAX;
        exact.then(|| Unique(value.into())).ok_or_else(|| E::custom("a number that readers round"))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Unique, E> {
        let exact = value.abs() <= EXACT_MAX as f64;
        exact.then(|| Unique(value.into())).ok_or_else(|| E::custom("a number that readers round"))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Unique, E> {
        Ok(Unique(text.into()))
    }
    fn visit_unit<E: Error>(self) -> Result<Unique, E> {
        Ok(Unique(Value::Null))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Unique, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Unique(values.into()))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
        let mut members = Map::new();
        while let Some((name, Unique(value))) = map.next_entry::<String, Unique>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a member occurs twice"));
            }
        }
        Ok(Unique(members.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(arguments: &str, ignore: &[&str]) -> Option<Signature> {
        let params = Bytes::from(format!(r#"{{"name":"work","arguments":{arguments}}}"#));
        let ignore: Vec<String> = ignore.iter().map(|one| (*one).to_owned()).collect();
        Signature::read("work", &params, &ignore)
    }

    #[test]
    fn the_same_arguments_in_another_spelling_are_the_same_work() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, r#"{ "b" : [ true , null ], "a" : 1 }"#),
            (r#"{"a":"é"}"#, r#"{"a":"\u00e9"}"#),
            (r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"c":2,"b":1}}"#),
        ] {
            assert!(signature(one, &[]).is_some(), "{one}");
            assert_eq!(signature(one, &[]), signature(other, &[]), "{one} {other}");
        }
    }

    #[test]
    fn other_arguments_are_other_work() {
        for (one, other) in [
            (r#"{"a":1}"#, r#"{"a":2}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
            (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
            (r#"{"a":0}"#, r#"{"a":false}"#),
        ] {
            assert_ne!(signature(one, &[]), signature(other, &[]), "{one} {other}");
        }
    }

    #[test]
    fn arguments_that_readers_read_differently_have_no_signature() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(ARGUMENTS_MAX));
        for arguments in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"b":1,"\u0062":2}}"#,
            r#"[{"a":1,"a":1}]"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":18446744073709551617}"#,
            r#"{"a":9007199254740993}"#,
            r#"{"a":1e999}"#,
            &long,
        ] {
            assert_eq!(signature(arguments, &[]), None, "{arguments:.60}");
        }
        let bad = Bytes::from_static(b"{\"name\":\"work\",\"arguments\":{\"a\":\"\xff\"}}");
        assert_eq!(Signature::read("work", &bad, &[]), None);
    }

    #[test]
    fn members_that_may_differ_are_left_out() {
        let one = r#"{"a":1,"meta":{"time":1,"x/y":2},"list":[{"n":1}]}"#;
        let other = r#"{"a":1,"meta":{"time":7},"list":[{"n":2}]}"#;
        assert_ne!(signature(one, &["/meta/time"]), signature(other, &["/meta/time"]));
        let ignore = ["/meta/time", "/meta/x~1y", "/list/0/n", "/none/here"];
        assert_eq!(signature(one, &ignore), signature(other, &ignore));
    }
}
