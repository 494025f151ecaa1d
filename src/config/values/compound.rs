//! Values of a route file that may be written in two ways. The code here reads them itself, because serde's errors for
//! untagged enums say neither where the error is nor what is wrong.

use std::fmt;

#[cfg(test)]
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The value of a header that a route sets.
pub(crate) enum HeaderText {
    Text(String),
    /// The path of a file with a bearer token.
    BearerFile(String),
}

/// A file with a bearer token.
#[derive(serde::Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct TokenFile {
    /// The path of the file.
    bearer_file: String,
}

impl<'de> Deserialize<'de> for HeaderText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = HeaderText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or { bearer_file = \"/run/secrets/token\" }")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<HeaderText, E> {
                Ok(HeaderText::Text(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<HeaderText, A::Error> {
                let file = TokenFile::deserialize(MapAccessDeserializer::new(table))?;
                Ok(HeaderText::BearerFile(file.bearer_file))
            }
        }
        from.deserialize_any(Reader)
    }
}

/// A single word, or a list of strings.
pub(crate) enum WordOrList {
    Word(String),
    List(Vec<String>),
}

impl<'de> Deserialize<'de> for WordOrList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = WordOrList;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a list of strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<WordOrList, E> {
                Ok(WordOrList::Word(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<WordOrList, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(list)).map(WordOrList::List)
            }
        }
        from.deserialize_any(Reader)
    }
}
