//! The kinds of values that settings have: how each stands in a route file, a flag and a recording.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use crate::config::routes::route::Cors;
use crate::config::values::compound::{FromPatterns, Patterns};
use crate::config::values::text::{
    AnswerRepair, AnyScale, AnyTime, Count, LevelOrOff, OneOf, OriginOrAny, Period, Spelling, Text,
    TimeOrOff,
};
use crate::config::values::{
    ANSWER_REPAIRS, OFF, Word, checked_meta, dialects, exact_time, members, read_exact_time,
    read_switch, word,
};
use crate::progress::dialect::{self, Dialect};
use crate::progress::policy::ask::{LogLevel, Members};
use crate::progress::{AnswerRepairs, Scale};

/// Writes a string of a route file as TOML; a member of an object comes with its name, by which
/// secrets are known.
pub type ShowText<'a> = &'a dyn Fn(Option<&str>, &str) -> String;

/// A kind of values.
pub(in crate::config) trait Format: 'static {
    /// A value as it is read.
    type Value: Clone + std::fmt::Debug + Send + Sync + 'static;
    /// The field that holds the value in effect.
    type Field: std::fmt::Debug;
    /// Two values as texts of a flag, of which at most one is the default.
    const EXAMPLES: [&'static str; 2];

    /// Puts a value into effect.
    fn put(field: &mut Self::Field, value: Self::Value);
    /// Reads a value of a route file.
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Self::Value, D::Error>;
    /// The JSON Schema of the value.
    fn schema(generator: &mut SchemaGenerator) -> Schema;
    /// The value in effect as TOML; `None` if there is none.
    fn print(field: &Self::Field, show: ShowText<'_>) -> Option<String>;
    /// Reads the texts of a flag.
    fn read(texts: &[String]) -> Result<Self::Value, String>;
    /// The words that a flag takes, if those are few.
    fn choices() -> Vec<&'static str> {
        Vec::new()
    }
    /// The names in a recording, where those are not the key.
    fn words() -> &'static [&'static str] {
        &[]
    }
    /// The value in effect as a word of a recording.
    fn word(_: &Self::Field, _: &str) -> Option<String> {
        None
    }
    /// Reads a word of a recording.
    fn read_word(field: &mut Self::Field, _: &str, text: &str) -> Result<(), String> {
        Self::put(field, Self::read(&[text.to_owned()])?);
        Ok(())
    }
}

/// The last text of a flag.
fn last(texts: &[String]) -> &str {
    texts.last().map_or("", String::as_str)
}

/// `text` as a TOML string.
pub(in crate::config) fn plain(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A kind of values that are spelled as strings, and can be spelled back.
pub(in crate::config) trait Spelled: Spelling + 'static {
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

/// A value that has no default.
pub(in crate::config) struct Maybe<F>(F);

impl<F: Format<Field = <F as Format>::Value>> Format for Maybe<F> {
    type Value = F::Value;
    type Field = Option<F::Value>;
    const EXAMPLES: [&'static str; 2] = F::EXAMPLES;

    fn put(field: &mut Self::Field, value: F::Value) {
        *field = Some(value);
    }
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<F::Value, D::Error> {
        F::deserialize(from)
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        F::schema(generator)
    }
    fn print(field: &Self::Field, show: ShowText<'_>) -> Option<String> {
        F::print(field.as_ref()?, show)
    }
    fn read(texts: &[String]) -> Result<F::Value, String> {
        F::read(texts)
    }
    fn choices() -> Vec<&'static str> {
        F::choices()
    }
    fn word(field: &Self::Field, name: &str) -> Option<String> {
        F::word(field.as_ref()?, name)
    }
    fn read_word(field: &mut Self::Field, name: &str, text: &str) -> Result<(), String> {
        let mut value = F::read(&[F::EXAMPLES[0].to_owned()])?;
        F::read_word(&mut value, name, text)?;
        *field = Some(value);
        Ok(())
    }
}

/// The parts of a format whose field holds the value itself.
macro_rules! value_is_field {
    () => {
        fn put(field: &mut Self::Field, value: Self::Value) {
            *field = value;
        }
    };
}

/// `true` or `false`.
pub(in crate::config) struct Switch;

impl Format for Switch {
    type Value = bool;
    type Field = bool;
    const EXAMPLES: [&'static str; 2] = ["true", "false"];

    value_is_field!();
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
        bool::deserialize(from)
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<bool>()
    }
    fn print(field: &bool, _: ShowText<'_>) -> Option<String> {
        Some(field.to_string())
    }
    fn read(texts: &[String]) -> Result<bool, String> {
        let text = last(texts);
        text.parse().map_err(|_| format!("{text:?} is neither true nor false"))
    }
    fn word(field: &bool, _: &str) -> Option<String> {
        Some(if *field { "on" } else { OFF }.to_owned())
    }
    fn read_word(field: &mut bool, _: &str, text: &str) -> Result<(), String> {
        *field = read_switch(text)?;
        Ok(())
    }
}

impl<const MIN: usize> Format for Count<MIN> {
    type Value = usize;
    type Field = usize;
    const EXAMPLES: [&'static str; 2] = ["100000", "200000"];

    value_is_field!();
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
        <Self as Deserialize>::deserialize(from).map(|count| count.0)
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
    fn print(field: &usize, _: ShowText<'_>) -> Option<String> {
        Some(field.to_string())
    }
    fn read(texts: &[String]) -> Result<usize, String> {
        let text = last(texts);
        text.parse().map_err(|_| format!("{text:?} is no whole number"))
    }
}

/// A list of strings.
pub(in crate::config) struct Strings;

impl Format for Strings {
    type Value = Vec<String>;
    type Field = Vec<String>;
    const EXAMPLES: [&'static str; 2] = ["a", "b"];

    value_is_field!();
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Vec::deserialize(from)
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Vec<String>>()
    }
    fn print(field: &Vec<String>, show: ShowText<'_>) -> Option<String> {
        Some(list(field.iter().map(|text| show(None, text))))
    }
    fn read(texts: &[String]) -> Result<Vec<String>, String> {
        Ok(texts.to_vec())
    }
}

/// CORS, answered in the place of the upstream.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(rename = "Cors", deny_unknown_fields, expecting = "a table such as { origins = [\"*\"] }")]
pub(in crate::config) struct CorsTable {
    /// The origins that may read answers; "*" stands for each that is admitted.
    origins: Vec<Text<OriginOrAny>>,
}

impl Format for CorsTable {
    type Value = Cors;
    type Field = Option<Cors>;
    const EXAMPLES: [&'static str; 2] = ["*", "https://a.example"];

    fn put(field: &mut Option<Cors>, value: Cors) {
        *field = Some(value);
    }
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Cors, D::Error> {
        let table = <Self as Deserialize>::deserialize(from)?;
        Ok(Cors { origins: table.origins.into_iter().map(|origin| origin.0).collect() })
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
    fn print(field: &Option<Cors>, show: ShowText<'_>) -> Option<String> {
        let origins = field.as_ref()?.origins.iter().map(|origin| show(None, origin));
        Some(format!("{{ origins = {} }}", list(origins)))
    }
    fn read(texts: &[String]) -> Result<Cors, String> {
        let origins: Result<_, _> = texts.iter().map(|text| OriginOrAny::read(text)).collect();
        Ok(Cors { origins: origins? })
    }
}

/// The repairs of answers that are not made.
pub(in crate::config) struct NoRepair;

impl NoRepair {
    /// The switch of each repair.
    fn switches(repairs: &mut AnswerRepairs) -> [(&'static str, &mut bool); 5] {
        let [response_id, error_shape, bare_result, orphan_answer, missing_id] = ANSWER_REPAIRS;
        [
            (response_id, &mut repairs.response_id),
            (error_shape, &mut repairs.error_shape),
            (bare_result, &mut repairs.bare_result),
            (orphan_answer, &mut repairs.orphan_answer),
            (missing_id, &mut repairs.missing_id),
        ]
    }
}

impl Format for NoRepair {
    type Value = Vec<String>;
    type Field = AnswerRepairs;
    const EXAMPLES: [&'static str; 2] = ["response-id", "missing-id"];

    // What a route leaves as it is, its tools and flags cannot take up again.
    fn put(field: &mut AnswerRepairs, names: Vec<String>) {
        for (name, switch) in Self::switches(field) {
            *switch &= !names.iter().any(|off| off == name);
        }
    }
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        let names = Vec::<Text<AnswerRepair>>::deserialize(from)?;
        Ok(names.into_iter().map(|name| name.0).collect())
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Vec<Text<AnswerRepair>>>()
    }
    fn print(field: &AnswerRepairs, _: ShowText<'_>) -> Option<String> {
        let mut repairs = *field;
        let off = Self::switches(&mut repairs).into_iter().filter(|(_, is_made)| !**is_made);
        Some(list(off.map(|(name, _)| plain(name))))
    }
    fn read(texts: &[String]) -> Result<Vec<String>, String> {
        texts.iter().map(|text| AnswerRepair::read(text)).collect()
    }
    fn choices() -> Vec<&'static str> {
        ANSWER_REPAIRS.to_vec()
    }
    fn words() -> &'static [&'static str] {
        &ANSWER_REPAIRS
    }
    fn word(field: &AnswerRepairs, name: &str) -> Option<String> {
        let mut repairs = *field;
        let mut switches = Self::switches(&mut repairs).into_iter();
        switches.find(|(known, _)| *known == name).and_then(|(_, on)| Switch::word(on, name))
    }
    fn read_word(field: &mut AnswerRepairs, name: &str, text: &str) -> Result<(), String> {
        for (known, switch) in Self::switches(field) {
            if known == name {
                *switch = read_switch(text)?;
            }
        }
        Ok(())
    }
}

impl<T: FromPatterns> Format for Patterns<T> {
    type Value = T;
    type Field = T;
    const EXAMPLES: [&'static str; 2] = [r"(?<percent>[0-9]+)%", r"(?<percent>[0-9]+)p"];

    value_is_field!();
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        <Self as Deserialize>::deserialize(from).map(|patterns| patterns.0)
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
    fn print(field: &T, _: ShowText<'_>) -> Option<String> {
        Some(list(field.patterns().into_iter().map(plain)))
    }
    fn read(texts: &[String]) -> Result<T, String> {
        T::read(texts)
    }
}

/// What toml calls a date where serde asks for a value of any kind.
const DATE: &str = "$__toml_private_datetime";

/// Members of a JSON object.
pub(in crate::config) struct Object;

/// Members of `_meta`, without those that are the client's to say.
pub(in crate::config) struct Meta;

/// Whether a value is what was written.
fn is_json(value: &Value) -> bool {
    match value {
        // TOML has no null: it was a number that JSON has not.
        Value::Null => false,
        Value::Array(elements) => elements.iter().all(is_json),
        Value::Object(members) => !members.contains_key(DATE) && members.values().all(is_json),
        _ => true,
    }
}

impl Format for Object {
    type Value = Members;
    type Field = Members;
    const EXAMPLES: [&'static str; 2] = [r#"{"a":1}"#, r#"{"b":"c"}"#];

    value_is_field!();
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        let Ok(Value::Object(members)) = Value::deserialize(from) else {
            return Err(D::Error::custom("a table is expected"));
        };
        if members.values().all(is_json) {
            return Ok(members);
        }
        Err(D::Error::custom("JSON has no dates, and no numbers such as inf"))
    }
    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
    fn print(field: &Members, show: ShowText<'_>) -> Option<String> {
        Some(object(field, show))
    }
    fn read(texts: &[String]) -> Result<Members, String> {
        members(last(texts))
    }
}

impl Format for Meta {
    type Value = Members;
    type Field = Members;
    const EXAMPLES: [&'static str; 2] = Object::EXAMPLES;

    value_is_field!();
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        checked_meta(Object::deserialize(from)?).map_err(D::Error::custom)
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Object::schema(generator)
    }
    fn print(field: &Members, show: ShowText<'_>) -> Option<String> {
        Object::print(field, show)
    }
    fn read(texts: &[String]) -> Result<Members, String> {
        checked_meta(Object::read(texts)?)
    }
}

/// Dialects by name: those that are built in. Names of a route file's own are looked up once all of
/// its tables are read.
pub(in crate::config) struct DialectNames;

impl Format for DialectNames {
    type Value = Vec<Dialect>;
    type Field = Vec<Dialect>;
    const EXAMPLES: [&'static str; 2] = ["standard", "lsp"];

    value_is_field!();
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Dialect>, D::Error> {
        Self::read(&Vec::deserialize(from)?).map_err(D::Error::custom)
    }
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Vec<String>>()
    }
    fn print(field: &Vec<Dialect>, _: ShowText<'_>) -> Option<String> {
        Some(list(field.iter().map(|dialect| plain(dialect.name()))))
    }
    fn read(texts: &[String]) -> Result<Vec<Dialect>, String> {
        dialects(texts.iter().map(String::as_str), &[])
    }
    fn word(field: &Vec<Dialect>, _: &str) -> Option<String> {
        if field.iter().any(|dialect| matches!(dialect, Dialect::Custom(_))) {
            return None;
        }
        Some(field.iter().map(Dialect::name).collect::<Vec<_>>().join(","))
    }
    fn read_word(field: &mut Vec<Dialect>, _: &str, text: &str) -> Result<(), String> {
        let named = |name| dialect::named(name).ok_or_else(|| format!("{name:?} is not known"));
        *field = text.split(',').map(named).collect::<Result<_, _>>()?;
        Ok(())
    }
}

/// `name` as a TOML key.
pub(in crate::config) fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) {
        return name.to_owned();
    }
    // Keys know no strings of several lines.
    String::from_utf8_lossy(&crate::protocol::json::quote(name)).replace('\u{7f}', "\\u007f")
}

pub(in crate::config) fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

pub(in crate::config) fn table(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    if items.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", items.join(", ")) }
}

fn object(members: &Members, show: ShowText<'_>) -> String {
    table(members.iter().map(|(name, one)| format!("{} = {}", key(name), value(name, one, show))))
}

fn value(name: &str, one: &Value, show: ShowText<'_>) -> String {
    match one {
        Value::String(text) => show(Some(name), text),
        Value::Array(elements) => list(elements.iter().map(|one| value(name, one, show))),
        Value::Object(members) => object(members, show),
        scalar => scalar.to_string(),
    }
}
