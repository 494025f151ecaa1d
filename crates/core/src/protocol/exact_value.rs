//! Values that every JSON reader reads in the same way. Two texts may be compared by their values only if all values of
//! both are of this kind. For example, a text with a repeated member has a second meaning that a comparison would not
//! see.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use smallvec::SmallVec;

use crate::protocol::mcp;

/// Limit of numbers with a fraction or an exponent that JSON readers keep exactly. Larger integers are compared by
/// their text.
const EXACT_MAX: u64 = 1 << 53;

/// Reads a JSON text. `None` if an object repeats a key, a reader would round a number, a value is nested deeper than
/// 127 levels, or the text is not valid JSON.
pub fn exact_value(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok().map(|Exact(value)| value)
}

/// Members of `_meta` that name a request and say nothing about its work. Claude Code, for example, sends the id that
/// the model chose for each call, so a repeated call has a different id.
const REQUEST_NAMES: [&str; 5] = [
    mcp::META_PROGRESS_TOKEN,
    mcp::META_TRACE.0,
    mcp::META_TRACE.1,
    mcp::META_BAGGAGE,
    "claudecode/toolUseId",
];

/// Limit of the members of a message. A message of JSON-RPC has four.
const MEMBERS_MAX: usize = 8;

/// Returns the parameters of the message `text`, without the members of `_meta` that only name the request; null if the
/// message has no parameters. `None` if the message repeats a member or escapes a member's name, or if [`exact_value`]
/// rejects the parameters.
pub fn exact_params(text: &[u8]) -> Option<Value> {
    let Envelope(mut params) = serde_json::from_slice(text).ok()?;
    if let Some(Value::Object(meta)) = params.get_mut("_meta") {
        REQUEST_NAMES.iter().for_each(|name| drop(meta.remove(*name)));
    }
    remove_empty_meta(&mut params);
    Some(params)
}

/// Removes `_meta` if it has no members, because this means the same as no `_meta`.
pub(crate) fn remove_empty_meta(params: &mut Value) {
    let Some(members) = params.as_object_mut() else { return };
    if members.get("_meta").and_then(Value::as_object).is_some_and(Map::is_empty) {
        members.remove("_meta");
    }
}

/// The parameters of a message without repeated keys. The other members are not kept, because they need not be
/// compared.
struct Envelope(Value);

impl<'de> Deserialize<'de> for Envelope {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(EnvelopeReader)
    }
}

struct EnvelopeReader;

impl<'de> Visitor<'de> for EnvelopeReader {
    type Value = Envelope;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope, A::Error> {
        let mut seen = SmallVec::<[&str; MEMBERS_MAX]>::new();
        let mut params = Value::Null;
        // `&str` can only borrow, so a name with escapes is an error here. A second spelling of a member is therefore
        // not overlooked.
        while let Some(name) = map.next_key::<&'de str>()? {
            if seen.contains(&name) || seen.len() == MEMBERS_MAX {
                return Err(A::Error::custom("a member occurs twice, or there are too many"));
            }
            seen.push(name);
            if name == "params" {
                Exact(params) = map.next_value()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Envelope(params))
    }
}

/// A value in which no object repeats a member, and whose numbers are the same for every JSON reader.
struct Exact(Value);

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ExactReader)
    }
}

struct ExactReader;

impl<'de> Visitor<'de> for ExactReader {
    type Value = Exact;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that every reader reads alike")
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Exact, E> {
        Ok(Exact(value.into()))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Exact, E> {
        Ok(Exact(value.into()))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Exact, E> {
        Ok(Exact(value.into()))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Exact, E> {
        let is_rounded = value.abs() > EXACT_MAX as f64 || value == 0.0 && value.is_sign_negative();
        if is_rounded {
            Err(E::custom("a number that readers round"))
        } else {
            Ok(Exact(value.into()))
        }
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Exact, E> {
        Ok(Exact(text.into()))
    }
    fn visit_unit<E: Error>(self) -> Result<Exact, E> {
        Ok(Exact(Value::Null))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Exact, A::Error> {
        let mut values = Vec::new();
        while let Some(Exact(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Exact(values.into()))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Exact, A::Error> {
        let mut members = Map::new();
        while let Some((name, Exact(value))) = map.next_entry::<String, Exact>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a member occurs twice"));
            }
        }
        Ok(Exact(members.into()))
    }
}
