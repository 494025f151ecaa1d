//! The kinds of values that settings have.
//!
//! Each kind has one reader and one writer. They serve the key of a route file, the flag, and the word of a recording.

use std::fmt::Debug;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde_json::Value;

use super::text::{AnswerRepair, Spelling, TextValue};
use super::toml_text::{ShowText, inline};
use super::values::{ANSWER_REPAIRS, OFF, checked_meta, dialects, members, read_switch};
use crate::progress::AnswerRepairs;
use crate::progress::dialect::Dialect;
use crate::progress::extract::Extract;
use crate::progress::policy::ask::JsonObject;
use crate::progress::policy::masks::Masks;

/// A kind of values.
pub trait Format: 'static {
    /// The type of a value in a route file.
    type Written: DeserializeOwned;
    /// The type of the parsed value.
    type Value: Clone + Debug + Send + Sync + 'static;
    /// The field that holds the value in effect.
    type Field: Debug + From<Self::Value>;

    /// Checks a value of a route file.
    fn check(written: Self::Written) -> Result<Self::Value, String>;
    /// Reads the texts that were given to a flag.
    fn read(texts: &[String]) -> Result<Self::Value, String>;
    /// The value in effect, as JSON; `None` if there is none.
    fn value(field: &Self::Field) -> Option<Value>;

    /// Sets the field to a value.
    fn put(field: &mut Self::Field, value: Self::Value) {
        *field = value.into();
    }
    /// The value in effect as TOML.
    fn print(field: &Self::Field, show: ShowText<'_>) -> Option<String> {
        Self::value(field).map(|value| inline(&value, show))
    }
    /// Returns the words that a flag accepts, if they are few.
    fn choices() -> Vec<&'static str> {
        Vec::new()
    }
    /// Returns the names in a recording, if they differ from the key.
    fn names() -> &'static [&'static str] {
        &[]
    }
    /// The value in effect as a word of a recording; `None` if no word can hold it.
    fn word(field: &Self::Field, _name: &str) -> Option<String> {
        let word = match Self::value(field)? {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(on) => if on { "on" } else { OFF }.to_owned(),
            Value::Array(all) => {
                all.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?.join(",")
            }
            _ => return None,
        };
        (!word.contains(char::is_whitespace)).then_some(word)
    }
    /// Reads a word of a recording.
    fn read_word(field: &mut Self::Field, _name: &str, text: &str) -> Result<(), String> {
        Self::put(field, Self::read(&[text.to_owned()])?);
        Ok(())
    }
}

/// A checked value of a route file.
pub struct Checked<F: Format>(pub F::Value);

impl<'de, F: Format> Deserialize<'de> for Checked<F> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        F::check(F::Written::deserialize(from)?).map(Self).map_err(D::Error::custom)
    }
}

/// Returns the last text given to a flag.
pub fn last(texts: &[String]) -> &str {
    texts.last().map_or("", String::as_str)
}

impl<S: Spelling<Value: Debug + Send + Sync>> Format for S {
    type Written = TextValue<S>;
    type Value = S::Value;
    type Field = S::Value;

    fn check(written: TextValue<S>) -> Result<S::Value, String> {
        Ok(written.0)
    }
    fn read(texts: &[String]) -> Result<S::Value, String> {
        <S as Spelling>::read(last(texts))
    }
    fn value(field: &S::Value) -> Option<Value> {
        Some(S::spell(field).into())
    }
    fn choices() -> Vec<&'static str> {
        <S as Spelling>::choices()
    }
    fn word(field: &S::Value, _: &str) -> Option<String> {
        Some(<S as Spelling>::word(field))
    }
    fn read_word(field: &mut S::Value, _: &str, text: &str) -> Result<(), String> {
        // Recordings may have dashes for the underscores of `request_id`.
        let dashed = |error| <S as Spelling>::read(&text.replace('-', "_")).map_err(|_| error);
        *field = <S as Spelling>::read(text).or_else(dashed)?;
        Ok(())
    }
}

/// `true` or `false` in a file; `on` or `off` for a flag and in a recording.
pub struct Switch;

impl Format for Switch {
    type Written = bool;
    type Value = bool;
    type Field = bool;

    fn check(written: bool) -> Result<bool, String> {
        Ok(written)
    }
    fn read(texts: &[String]) -> Result<bool, String> {
        read_switch(last(texts))
    }
    fn value(field: &bool) -> Option<Value> {
        Some((*field).into())
    }
}

/// A list of strings with the same spelling `S`.
pub struct List<S>(PhantomData<S>);

impl<S: Spelling<Value: Debug + Send + Sync>> Format for List<S> {
    type Written = Vec<TextValue<S>>;
    type Value = Vec<S::Value>;
    type Field = Vec<S::Value>;

    fn check(written: Vec<TextValue<S>>) -> Result<Vec<S::Value>, String> {
        Ok(written.into_iter().map(|text| text.0).collect())
    }
    fn read(texts: &[String]) -> Result<Vec<S::Value>, String> {
        texts.iter().map(|text| <S as Spelling>::read(text)).collect()
    }
    fn value(field: &Vec<S::Value>) -> Option<Value> {
        Some(field.iter().map(S::spell).collect())
    }
}

/// The repairs of answers that are turned off.
pub struct NoRepair;

impl NoRepair {
    /// Returns each repair's name and its switch.
    fn switches(repairs: &mut AnswerRepairs) -> [(&'static str, &mut bool); 12] {
        let [
            response_id,
            error_shape,
            envelope,
            bare_result,
            ping,
            orphan_answer,
            missing_id,
            event_name,
            unicode,
            split_line,
            noise,
            total,
        ] = ANSWER_REPAIRS;
        [
            (response_id, &mut repairs.response_id),
            (error_shape, &mut repairs.error_shape),
            (envelope, &mut repairs.envelope),
            (bare_result, &mut repairs.bare_result),
            (ping, &mut repairs.ping),
            (orphan_answer, &mut repairs.orphan_answer),
            (missing_id, &mut repairs.missing_id),
            (event_name, &mut repairs.event_name),
            (unicode, &mut repairs.unicode),
            (split_line, &mut repairs.split_line),
            (noise, &mut repairs.noise),
            (total, &mut repairs.total),
        ]
    }
}

impl Format for NoRepair {
    type Written = Vec<TextValue<AnswerRepair>>;
    type Value = AnswerRepairs;
    type Field = AnswerRepairs;

    fn check(written: Self::Written) -> Result<AnswerRepairs, String> {
        let mut repairs = AnswerRepairs::default();
        for (name, switch) in Self::switches(&mut repairs) {
            *switch = !written.iter().any(|off| off.0 == name);
        }
        Ok(repairs)
    }
    fn read(texts: &[String]) -> Result<AnswerRepairs, String> {
        Self::check(
            texts
                .iter()
                .map(|text| <AnswerRepair as Spelling>::read(text).map(TextValue))
                .collect::<Result<_, _>>()?,
        )
    }
    fn value(field: &AnswerRepairs) -> Option<Value> {
        let mut repairs = *field;
        let off = Self::switches(&mut repairs).into_iter().filter(|(_, is_made)| !**is_made);
        Some(off.map(|(name, _)| name).collect())
    }
    // Switches can only be turned off: a repair that a route turns off stays off for its tools and for flags.
    fn put(field: &mut AnswerRepairs, mut value: AnswerRepairs) {
        for ((_, switch), (_, on)) in
            Self::switches(field).into_iter().zip(Self::switches(&mut value))
        {
            *switch &= *on;
        }
    }
    fn choices() -> Vec<&'static str> {
        ANSWER_REPAIRS.to_vec()
    }
    fn names() -> &'static [&'static str] {
        &ANSWER_REPAIRS
    }
    fn word(field: &AnswerRepairs, name: &str) -> Option<String> {
        let mut repairs = *field;
        let mut switches = Self::switches(&mut repairs).into_iter();
        switches.find(|(known, _)| *known == name).and_then(|(_, on)| Switch::word(on, name))
    }
    fn read_word(field: &mut AnswerRepairs, name: &str, text: &str) -> Result<(), String> {
        let on = read_switch(text)?;
        let switches = Self::switches(field).into_iter().filter(|(known, _)| *known == name);
        switches.for_each(|(_, switch)| *switch = on);
        Ok(())
    }
}

/// A list of patterns that are read together into one value.
pub struct PatternList<T>(PhantomData<T>);

/// A value that is read from a list of patterns.
pub trait FromPatterns: Clone + Debug + Send + Sync + 'static {
    /// Reads the patterns; the error names the wrong pattern and the right form.
    fn read(patterns: &[String]) -> Result<Self, String>;
    /// The patterns as they were written.
    fn patterns(&self) -> Vec<&str>;
}

macro_rules! from_patterns {
    ($($type:ty),+) => {$(
        impl FromPatterns for $type {
            fn read(patterns: &[String]) -> Result<Self, String> {
                Self::read(patterns.iter().map(|pattern| &**pattern))
            }
            fn patterns(&self) -> Vec<&str> {
                self.patterns().collect()
            }
        }
    )+};
}

from_patterns!(Extract, Masks);

impl<T: FromPatterns> Format for PatternList<T> {
    type Written = Vec<String>;
    type Value = T;
    type Field = T;

    fn check(written: Vec<String>) -> Result<T, String> {
        T::read(&written)
    }
    fn read(texts: &[String]) -> Result<T, String> {
        if let [word] = texts
            && word == OFF
        {
            return T::read(&[]);
        }
        T::read(texts)
    }
    fn value(field: &T) -> Option<Value> {
        Some(field.patterns().into())
    }
}

/// The name that the `toml` crate gives to a date if serde asks for a value of any kind.
const DATE: &str = "$__toml_private_datetime";

/// Members of a JSON object. With `IS_META` they are members of `_meta`, which must not include those that only the
/// client may set.
pub struct Object<const IS_META: bool = false>;

/// A TOML table as a JSON object.
pub struct JsonTable(JsonObject);

/// Whether JSON can represent a TOML value: JSON has no dates, and no numbers such as `inf`.
fn is_json(value: &Value) -> bool {
    match value {
        // TOML has no null: `serde_json` turns a number that JSON cannot represent (`inf`, `nan`) into null.
        Value::Null => false,
        Value::Array(elements) => elements.iter().all(is_json),
        Value::Object(members) => !members.contains_key(DATE) && members.values().all(is_json),
        _ => true,
    }
}

impl<'de> Deserialize<'de> for JsonTable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Ok(Value::Object(members)) = Value::deserialize(from) else {
            return Err(D::Error::custom("a table is expected"));
        };
        if members.values().all(is_json) {
            return Ok(Self(members));
        }
        Err(D::Error::custom("JSON has no dates, and no numbers such as inf"))
    }
}

impl<const IS_META: bool> Format for Object<IS_META> {
    type Written = JsonTable;
    type Value = JsonObject;
    type Field = JsonObject;

    fn check(written: JsonTable) -> Result<JsonObject, String> {
        if IS_META { checked_meta(written.0) } else { Ok(written.0) }
    }
    fn read(texts: &[String]) -> Result<JsonObject, String> {
        Self::check(JsonTable(members(last(texts))?))
    }
    fn value(field: &JsonObject) -> Option<Value> {
        Some(field.clone().into())
    }
}

/// A list of dialect names. Built-in names are known at once; names from the route file are looked up after all tables
/// are read.
pub struct DialectNames;

impl Format for DialectNames {
    type Written = Vec<String>;
    type Value = Vec<Dialect>;
    type Field = Vec<Dialect>;

    fn check(written: Vec<String>) -> Result<Vec<Dialect>, String> {
        Self::read(&written)
    }
    fn read(texts: &[String]) -> Result<Vec<Dialect>, String> {
        dialects(texts.iter().flat_map(|text| text.split(',')), &[])
    }
    fn value(field: &Vec<Dialect>) -> Option<Value> {
        Some(field.iter().map(Dialect::name).collect())
    }
    fn word(field: &Vec<Dialect>, _: &str) -> Option<String> {
        let is_own = |dialect: &Dialect| matches!(dialect, Dialect::Custom(_));
        let names: Vec<&str> = field.iter().map(Dialect::name).collect();
        (!field.iter().any(is_own)).then(|| names.join(","))
    }
}
