//! The kinds of values that are strings in a route file: times, words, scales.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer};

use super::format::{Format, last};
use super::toml_text::{ShowText, plain};
use crate::config::values::text::{
    AnyScale, AnyTime, LevelOrOff, OneOf, Period, Spelling, Text, TimeOrOff,
};
use crate::config::values::{OFF, Word, exact_time, read_exact_time, word};
use crate::progress::Scale;
use crate::progress::policy::ask::LogLevel;

/// A kind of values that are spelled as strings, and can be spelled back.
pub(crate) trait Spelled: Spelling + 'static {
    const EXAMPLES: [&'static str; 2];
    fn spell(value: &Self::Value) -> String;
    fn choices() -> Vec<&'static str> {
        Vec::new()
    }
    fn word(value: &Self::Value) -> String {
        Self::spell(value)
    }
    fn read_word(text: &str) -> Result<Self::Value, String> {
        Self::read(text)
    }
}

impl<S: Spelled<Value: Clone + std::fmt::Debug + Send + Sync>> Format for S {
    type Value = S::Value;
    type Field = S::Value;
    const EXAMPLES: [&'static str; 2] = <S as Spelled>::EXAMPLES;

    fn put(field: &mut S::Value, value: S::Value) {
        *field = value;
    }
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<S::Value, D::Error> {
        Text::<S>::deserialize(from).map(|text| text.0)
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Text::<S>::json_schema(generator)
    }
    fn print(field: &S::Value, _: ShowText<'_>) -> Option<String> {
        Some(plain(&S::spell(field)))
    }
    fn read(texts: &[String]) -> Result<S::Value, String> {
        <S as Spelling>::read(last(texts))
    }
    fn choices() -> Vec<&'static str> {
        <S as Spelled>::choices()
    }
    fn word(field: &S::Value, _: &str) -> Option<String> {
        Some(<S as Spelled>::word(field))
    }
    fn read_word(field: &mut S::Value, _: &str, text: &str) -> Result<(), String> {
        *field = <S as Spelled>::read_word(text)?;
        Ok(())
    }
}

impl<T: Word + PartialEq> Spelled for OneOf<T> {
    const EXAMPLES: [&'static str; 2] = [T::WORDS[0].0, T::WORDS[1].0];
    fn spell(value: &T) -> String {
        word(*value).to_owned()
    }
    fn choices() -> Vec<&'static str> {
        T::WORDS.iter().map(|(word, _)| *word).collect()
    }
    fn read_word(text: &str) -> Result<T, String> {
        // Recordings may have dashes for the underscores of `request_id`.
        T::read(text).or_else(|error| T::read(&text.replace('-', "_")).map_err(|_| error))
    }
}

macro_rules! times {
    ($($format:ty),*) => {$(
        impl Spelled for $format {
            const EXAMPLES: [&'static str; 2] = ["7s", "7m 1ms"];
            fn spell(value: &Duration) -> String {
                humantime::format_duration(*value).to_string()
            }
            fn word(value: &Duration) -> String {
                exact_time(*value)
            }
            fn read_word(text: &str) -> Result<Duration, String> {
                read_exact_time(text)
            }
        }
    )*};
}

times!(AnyTime, Period);

impl Spelled for TimeOrOff {
    const EXAMPLES: [&'static str; 2] = ["7s", "7m 1ms"];
    fn spell(value: &Option<Duration>) -> String {
        value.map_or_else(|| OFF.to_owned(), |time| AnyTime::spell(&time))
    }
    fn word(value: &Option<Duration>) -> String {
        value.map_or_else(|| OFF.to_owned(), exact_time)
    }
    fn read_word(text: &str) -> Result<Option<Duration>, String> {
        if text == OFF { Ok(None) } else { read_exact_time(text).map(Some) }
    }
}

impl Spelled for LevelOrOff {
    const EXAMPLES: [&'static str; 2] = ["off", "warning"];
    fn spell(value: &Option<LogLevel>) -> String {
        value.map_or(OFF, word).to_owned()
    }
}

impl Spelled for AnyScale {
    const EXAMPLES: [&'static str; 2] = ["percent", "250"];
    fn spell(value: &Scale) -> String {
        match value {
            Scale::Percent => "percent".to_owned(),
            Scale::Unit => "unit".to_owned(),
            Scale::Of(total) => total.to_string(),
        }
    }
}
