//! Values that are strings: their syntax, the errors for other values, and their JSON Schema.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

#[cfg(feature = "schema")]
use schemars::{Schema, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::values::{
    ANSWER_REPAIRS, AUTO, OFF, Word, byte_size, byte_size_text, exact_time, level_or_off, nearest,
    positive_time, repeated_after, scale, time, time_or_off, word,
};
use crate::progress::Scale;
use crate::progress::dialect::Pointer;
use crate::progress::policy::ask::LogLevel;
use crate::progress::policy::late::RepeatedAfter;

/// How the values of a setting are written as strings.
pub trait Spelling: 'static {
    /// The type of the parsed value.
    type Value: Clone;
    /// Describes the expected text, with an example, for errors.
    fn expected() -> String;
    /// Reads the value; the error names the right form.
    fn read(text: &str) -> Result<Self::Value, String>;
    /// Returns the value as text.
    fn spell(value: &Self::Value) -> String;
    /// Returns the value as a word of a recording.
    fn word(value: &Self::Value) -> String {
        Self::spell(value)
    }
    /// Returns every word that a flag accepts; empty if the flag also accepts other texts.
    fn choices() -> Vec<&'static str> {
        Vec::new()
    }
}

/// A [`Spelling`] with a JSON Schema, for editors.
#[cfg(feature = "schema")]
pub trait DescribedSpelling: Spelling {
    /// Returns the JSON Schema of the value.
    fn schema() -> Schema;
}

/// A string in the form `S`.
pub struct TextValue<S: Spelling>(pub S::Value);

impl<'de, S: Spelling> Deserialize<'de> for TextValue<S> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut value = None;
        let mut read = |text: &str| {
            value = Some(S::read(text)?);
            Ok(())
        };
        from.deserialize_str(TextVisitor { expected: S::expected, read: &mut read })?;
        value.map(Self).ok_or_else(|| D::Error::custom(S::expected()))
    }
}

/// Hands a string to the reader of its spelling.
// One type for all spellings: the deserializer is compiled for each visitor, 3 KB each time.
struct TextVisitor<'r> {
    expected: fn() -> String,
    read: &'r mut dyn FnMut(&str) -> Result<(), String>,
}

impl Visitor<'_> for TextVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&(self.expected)())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        (self.read)(text).map_err(E::custom)
    }
}

/// Reads a list of strings in the form `S`.
pub fn texts<'de, S: Spelling, D: Deserializer<'de>>(from: D) -> Result<Vec<S::Value>, D::Error> {
    Ok(Vec::<TextValue<S>>::deserialize(from)?.into_iter().map(|text| text.0).collect())
}

/// A value that is one of a few words.
pub struct OneOf<T>(PhantomData<T>);

impl<T: Word + PartialEq> Spelling for OneOf<T> {
    type Value = T;

    fn expected() -> String {
        let words: Vec<String> =
            Self::choices().iter().map(|choice| format!("{choice:?}")).collect();
        format!("one of {}", words.join(", "))
    }

    fn read(text: &str) -> Result<T, String> {
        T::read(text)
    }

    fn spell(value: &T) -> String {
        word(*value).to_owned()
    }

    fn choices() -> Vec<&'static str> {
        T::WORDS.iter().map(|(word, _)| *word).collect()
    }
}

#[cfg(feature = "schema")]
impl<T: Word + PartialEq> DescribedSpelling for OneOf<T> {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "enum": Self::choices() })
    }
}

/// Declares kinds of strings and implements [`Spelling`] for them. Each has a type of values, an expected text, a
/// reader, a writer and a JSON Schema. The attribute in front, such as `#[cfg(test)]`, determines when the schemas
/// exist, because they need `schemars`.
#[macro_export]
macro_rules! spellings {
    (#[$described:meta] $(
        $(#[doc = $doc:literal])+
        $vis:vis $name:ident: $value:ty, $expected:literal {
            read: $read:expr, spell: $spell:expr, $(word: $word:expr,)? schema: $schema:tt
        }
    )+) => {$(
        $(#[doc = $doc])+
        $vis struct $name;

        impl $crate::policy_file::text::Spelling for $name {
            type Value = $value;

            fn expected() -> String {
                $expected.to_owned()
            }

            fn read(text: &str) -> Result<$value, String> {
                let read: fn(&str) -> Result<$value, String> = $read;
                read(text)
            }

            fn spell(value: &$value) -> String {
                let spell: fn(&$value) -> String = $spell;
                spell(value)
            }

            $(fn word(value: &$value) -> String {
                let word: fn(&$value) -> String = $word;
                word(value)
            })?
        }

        #[$described]
        impl $crate::policy_file::text::DescribedSpelling for $name {
            fn schema() -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    )+};
}

/// The word for an unknown scale.
const RAW: &str = "raw";

/// The pattern of a time; [`time`] also takes longer names of units.
#[cfg(feature = "schema")]
const TIME: &str = r"^(0|([0-9]+ ?[a-zµ]+ ?)+)$";

spellings! { #[cfg(feature = "schema")]
    /// A time.
    pub AnyTime: Duration, "a time such as \"150ms\"" {
        read: time,
        spell: time_text,
        word: |time: &Duration| exact_time(*time),
        schema: { "type": "string", "pattern": TIME, "examples": ["150ms", "2s", "1m 30s"] }
    }

    /// A time above zero.
    pub Period: Duration, "a time such as \"5s\"" {
        read: positive_time,
        spell: time_text,
        word: |time: &Duration| exact_time(*time),
        schema: { "type": "string", "pattern": TIME, "examples": ["5s", "2m"] }
    }

    /// A number of bytes.
    pub ByteSize: usize, "a size such as \"64MiB\"" {
        read: byte_size,
        spell: |bytes: &usize| byte_size_text(*bytes),
        schema: { "type": "string", "pattern": "^[0-9]+(KiB|MiB|GiB)?$", "examples": ["16MiB", "1GiB"] }
    }

    /// A JSON Pointer into the arguments of a call.
    pub ArgumentPointer: String, "a JSON Pointer such as \"/request_id\"" {
        read: |text: &str| Pointer::read(text).map(|_| text.to_owned()),
        spell: String::clone,
        schema: { "type": "string", "pattern": "^(/([^~]|~[01])*)+$", "examples": ["/request_id", "/trace/id"] }
    }

    /// A time, or `off`.
    pub TimeOrOff: Option<Duration>, "a time such as \"15s\", or \"off\"" {
        read: time_or_off,
        spell: |limit: &Option<Duration>| or_off(limit.as_ref().map(time_text)),
        word: |limit: &Option<Duration>| or_off(limit.map(exact_time)),
        schema: {
            "type": "string",
            "pattern": format!("{TIME}|^{OFF}$"),
            "examples": ["15s", OFF],
        }
    }

    /// A time, `auto` or `off`.
    pub RepeatedTime: RepeatedAfter, "a time such as \"15s\", \"auto\" or \"off\"" {
        read: repeated_after,
        spell: |after: &RepeatedAfter| match after {
            RepeatedAfter::Off => OFF.to_owned(),
            RepeatedAfter::Auto => AUTO.to_owned(),
            RepeatedAfter::Age(age) => time_text(age),
        },
        word: |after: &RepeatedAfter| match after {
            RepeatedAfter::Off => OFF.to_owned(),
            RepeatedAfter::Auto => AUTO.to_owned(),
            RepeatedAfter::Age(age) => exact_time(*age),
        },
        schema: {
            "type": "string",
            "pattern": format!("{TIME}|^({AUTO}|{OFF})$"),
            "examples": ["15s", AUTO, OFF],
        }
    }

    /// A level of log messages, or `off`.
    pub LevelOrOff: Option<LogLevel>, "a level such as \"info\", or \"off\"" {
        read: level_or_off,
        spell: |level: &Option<LogLevel>| or_off(level.map(|level| word(level).to_owned())),
        schema: {
            "type": "string",
            "enum": LogLevel::WORDS.iter().map(|(name, _)| *name).chain([OFF]).collect::<Vec<_>>(),
        }
    }

    /// The scale of a value without a total; `raw`: the scale is unknown.
    pub AnyScale: Option<Scale>, "\"percent\", \"unit\", a total such as \"250\", or \"raw\"" {
        read: |text: &str| if text == RAW { Ok(None) } else { scale(text).map(Some) },
        spell: |scale: &Option<Scale>| match scale {
            None => RAW.to_owned(),
            Some(Scale::Percent) => "percent".to_owned(),
            Some(Scale::Unit) => "unit".to_owned(),
            Some(Scale::Of(total)) => total.to_string(),
        },
        schema: {
            "type": "string",
            "pattern": r"^(percent|unit|raw|[0-9.]+)$",
            "examples": ["percent", "unit", "250", RAW],
        }
    }

    /// A repair of answers, by name.
    pub AnswerRepair: String, "the name of a repair such as \"response-id\"" {
        read: answer_repair,
        spell: String::clone,
        schema: { "type": "string", "enum": ANSWER_REPAIRS }
    }

    /// A JSON Pointer into a message.
    pub JsonPointer: Pointer, "a JSON Pointer such as \"/params/percent\"" {
        read: Pointer::read,
        spell: |pointer: &Pointer| pointer.as_str().to_owned(),
        schema: { "type": "string", "pattern": "^/", "examples": ["/params/percent"] }
    }
}

fn time_text(time: &Duration) -> String {
    humantime::format_duration(*time).to_string()
}

fn or_off(text: Option<String>) -> String {
    text.unwrap_or_else(|| OFF.to_owned())
}

fn answer_repair(text: &str) -> Result<String, String> {
    if ANSWER_REPAIRS.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(match nearest(text, ANSWER_REPAIRS) {
        Some(near) => format!("{text:?} is not a repair; did you mean {near:?}?"),
        None => {
            format!("{text:?} is not a repair; one of {} is expected", ANSWER_REPAIRS.join(", "))
        }
    })
}
