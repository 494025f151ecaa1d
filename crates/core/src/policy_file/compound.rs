//! Values that may be written in two ways. They are read by hand, because the errors of untagged enums say neither
//! where the error is nor what is wrong.

use std::fmt;

use bytes::Bytes;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::text::{JsonPointer, Spelling, TextValue};
use super::values::Word;
use crate::progress::dialect::TextSource;
use crate::protocol::json;

/// A string, or a list of strings.
pub struct OneOrMore(pub Vec<String>);

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = OneOrMore;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<OneOrMore, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMore)
            }
        }
        from.deserialize_any(Reader)
    }
}

/// One of the sources of a dialect, or a list of them.
pub struct Sources(pub Vec<TextSource>);

impl<'de> Deserialize<'de> for Sources {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let OneOrMore(words) = OneOrMore::deserialize(from)?;
        let sources: Result<_, String> = words.iter().map(|word| TextSource::read(word)).collect();
        sources.map(Sources).map_err(D::Error::custom)
    }
}

/// The mark of a call's last message: a pointer to `true`, or a pointer and the value that is expected there.
pub struct FinalSection {
    /// The pointer to the mark.
    pub pointer: TextValue<JsonPointer>,
    /// The expected value as JSON text.
    pub equals: Bytes,
}

/// A pointer, and the value there.
#[derive(serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Marker {
    /// The pointer.
    pointer: TextValue<JsonPointer>,
    /// The value there: a string, a number, true or false. Default: true.
    equals: Option<Scalar>,
}

impl<'de> Deserialize<'de> for FinalSection {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = FinalSection;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON Pointer or { pointer = \"/params/status\", equals = \"done\" }")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<FinalSection, E> {
                let pointer = JsonPointer::read(text).map(TextValue).map_err(E::custom)?;
                Ok(FinalSection { pointer, equals: Scalar::default().0 })
            }
            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<FinalSection, A::Error> {
                let marker = Marker::deserialize(MapAccessDeserializer::new(table))?;
                Ok(FinalSection {
                    pointer: marker.pointer,
                    equals: marker.equals.unwrap_or_default().0,
                })
            }
        }
        from.deserialize_any(Reader)
    }
}

/// A string, a number, `true` or `false`, as JSON text.
pub(super) struct Scalar(Bytes);

impl Default for Scalar {
    fn default() -> Self {
        Self(Bytes::from_static(b"true"))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number, true or false")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(json::quote(text)))
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string().into()))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string().into()))
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
                let text = value.to_string();
                if json::number(text.as_bytes()).is_none() {
                    return Err(E::custom("a number that JSON can hold is expected"));
                }
                Ok(Scalar(text.into()))
            }
        }
        from.deserialize_any(Reader)
    }
}
