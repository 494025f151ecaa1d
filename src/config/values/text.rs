//! Values of a route file that are strings: their syntax, the errors for other values, and their
//! JSON Schema.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use url::Url;

use crate::config::routes::route::Secret;
use crate::config::values::{
    ANSWER_REPAIRS, OFF, Word, level_or_off, nearest, positive_time, scale, time, time_or_off,
};
use crate::progress::Scale;
use crate::progress::dialect::Pointer;
use crate::progress::policy::ask::LogLevel;

/// A way of spelling a value.
pub(in crate::config) trait Spelling {
    /// What it is read into.
    type Value;
    /// What is expected, with an example.
    const EXPECTED: &'static str;
    /// What is expected, where that takes more to say.
    fn expected() -> String {
        Self::EXPECTED.to_owned()
    }
    /// Reads it, or says what would be right.
    fn read(text: &str) -> Result<Self::Value, String>;
    /// What an editor is told of it.
    fn schema() -> Schema;
}

/// A string that is spelled in this way.
pub(in crate::config) struct Text<S: Spelling>(pub(in crate::config) S::Value);

impl<'de, S: Spelling> Deserialize<'de> for Text<S> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<S>(PhantomData<S>);
        impl<S: Spelling> Visitor<'_> for Reader<S> {
            type Value = Text<S>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&S::expected())
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<S>, E> {
                S::read(text).map(Text).map_err(E::custom)
            }
        }
        from.deserialize_str(Reader(PhantomData))
    }
}

impl<S: Spelling> JsonSchema for Text<S> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        or_variable(S::schema())
    }
}

/// Any string may hold a variable instead, whose value no editor knows.
pub(in crate::config) fn or_variable(schema: Schema) -> Schema {
    json_schema!({ "anyOf": [schema, { "type": "string", "pattern": r"\$\{" }] })
}

/// A whole number of at least `MIN`.
#[derive(Clone, Copy)]
pub(in crate::config) struct Count<const MIN: usize>(pub(in crate::config) usize);

impl<'de, const MIN: usize> Deserialize<'de> for Count<MIN> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<const MIN: usize>;
        impl<const MIN: usize> Visitor<'_> for Reader<MIN> {
            type Value = Count<MIN>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number of at least {MIN}")
            }
            fn visit_i64<E: Error>(self, count: i64) -> Result<Count<MIN>, E> {
                let count = usize::try_from(count).ok().filter(|count| *count >= MIN);
                count.map(Count).ok_or_else(|| E::custom(format!("at least {MIN} is expected")))
            }
        }
        from.deserialize_i64(Reader)
    }
}

impl<const MIN: usize> JsonSchema for Count<MIN> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN })
    }
}

/// One of a few words.
pub(in crate::config) struct OneOf<T>(PhantomData<T>);

impl<T: Word> Spelling for OneOf<T> {
    type Value = T;
    const EXPECTED: &'static str = "one of a few words";

    fn expected() -> String {
        let words: Vec<String> = T::WORDS.iter().map(|(word, _)| format!("{word:?}")).collect();
        format!("one of {}", words.join(", "))
    }

    fn read(text: &str) -> Result<T, String> {
        T::read(text)
    }

    fn schema() -> Schema {
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        json_schema!({ "type": "string", "enum": words })
    }
}

/// What a time looks like; [`time`] also takes longer names of units.
const TIME: &str = r"^(0|([0-9]+ ?[a-zµ]+ ?)+)$";

/// A time.
pub(in crate::config) struct AnyTime;

impl Spelling for AnyTime {
    type Value = Duration;
    const EXPECTED: &'static str = "a time such as \"150ms\"";

    fn read(text: &str) -> Result<Duration, String> {
        time(text)
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": TIME, "examples": ["150ms", "2s", "1m 30s"] })
    }
}

/// A time that is more than none.
pub(in crate::config) struct Period;

impl Spelling for Period {
    type Value = Duration;
    const EXPECTED: &'static str = "a time such as \"5s\"";

    fn read(text: &str) -> Result<Duration, String> {
        positive_time(text)
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": TIME, "examples": ["5s", "2m"] })
    }
}

/// A time, or `off`.
pub(in crate::config) struct TimeOrOff;

impl Spelling for TimeOrOff {
    type Value = Option<Duration>;
    const EXPECTED: &'static str = "a time such as \"15s\", or \"off\"";

    fn read(text: &str) -> Result<Option<Duration>, String> {
        time_or_off(text)
    }

    fn schema() -> Schema {
        let pattern = format!("{TIME}|^{OFF}$");
        json_schema!({ "type": "string", "pattern": pattern, "examples": ["15s", OFF] })
    }
}

/// A level of log messages, or `off`.
pub(in crate::config) struct LevelOrOff;

impl Spelling for LevelOrOff {
    type Value = Option<LogLevel>;
    const EXPECTED: &'static str = "a level such as \"info\", or \"off\"";

    fn read(text: &str) -> Result<Option<LogLevel>, String> {
        level_or_off(text)
    }

    fn schema() -> Schema {
        let levels = LogLevel::WORDS.iter().map(|(name, _)| *name);
        let words: Vec<&str> = levels.chain([OFF]).collect();
        json_schema!({ "type": "string", "enum": words })
    }
}

/// What a bare figure counts.
pub(in crate::config) struct AnyScale;

impl Spelling for AnyScale {
    type Value = Scale;
    const EXPECTED: &'static str = "\"percent\", \"unit\" or a total such as \"250\"";

    fn read(text: &str) -> Result<Scale, String> {
        scale(text)
    }

    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^(percent|unit|[0-9.]+)$",
            "examples": ["percent", "unit", "250"],
        })
    }
}

/// Where a listener listens.
pub(in crate::config) struct Address;

impl Spelling for Address {
    type Value = SocketAddr;
    const EXPECTED: &'static str = "an address such as \"127.0.0.1:7332\"";

    fn read(text: &str) -> Result<SocketAddr, String> {
        text.parse().map_err(|_| {
            let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
            let port = port.unwrap_or("7332");
            format!(
                "{text:?} is no address with a port; one such as \"127.0.0.1:{port}\" is expected"
            )
        })
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": ":[0-9]+$", "examples": ["127.0.0.1:7332", "[::1]:7332"] })
    }
}

/// A host as clients name it, with or without a port.
pub(in crate::config) struct HostName;

impl Spelling for HostName {
    type Value = String;
    const EXPECTED: &'static str = "a host name such as \"mcp.example.com\"";

    fn read(text: &str) -> Result<String, String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if !text.is_empty() && text.chars().all(is_part) {
            return Ok(text.to_owned());
        }
        let inner = text.split_once("://").map_or(text, |(_, host)| host);
        let inner = inner.split(['/', '?', '#']).next().unwrap_or_default();
        let inner =
            if inner.is_empty() || !inner.chars().all(is_part) { "mcp.example.com" } else { inner };
        Err(format!("{text:?} is no host name; one such as {inner:?} is expected"))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": r"^[A-Za-z0-9._:\[\]-]+$" })
    }
}

/// Where a page of a browser comes from.
pub(in crate::config) struct Origin;

impl Spelling for Origin {
    type Value = String;
    const EXPECTED: &'static str = "an origin such as \"https://app.example.com\"";

    fn read(text: &str) -> Result<String, String> {
        let is_scheme = |scheme: &str| {
            !scheme.is_empty()
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        };
        let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if is_scheme(scheme) && HostName::read(host).is_ok() {
            let origin = format!("{scheme}://{host}").to_ascii_lowercase();
            if origin == text.to_ascii_lowercase() {
                return Ok(origin);
            }
            return Err(format!("{text:?} is no origin; did you mean {origin:?}?"));
        }
        Err(format!("{text:?} is no origin; one such as \"https://app.example.com\" is expected"))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[A-Za-z0-9+.-]+://[^/?#]+$" })
    }
}

/// An origin, or `*`.
pub(in crate::config) struct OriginOrAny;

impl Spelling for OriginOrAny {
    type Value = String;
    const EXPECTED: &'static str = "an origin such as \"https://app.example.com\", or \"*\"";

    fn read(text: &str) -> Result<String, String> {
        if text == "*" { Ok(text.to_owned()) } else { Origin::read(text) }
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": r"^(\*|[A-Za-z0-9+.-]+://[^/?#]+)$" })
    }
}

/// An HTTP endpoint. What is wrong with one is said without it: it may hold a key.
pub(in crate::config) struct Endpoint;

impl Spelling for Endpoint {
    type Value = (Url, String);
    const EXPECTED: &'static str = "a URL such as \"https://example.com/mcp\"";

    fn read(text: &str) -> Result<(Url, String), String> {
        let url = Url::parse(text).map_err(|error| {
            format!("this is no URL ({error}); one such as \"https://example.com/mcp\" is expected")
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("http:// or https:// is expected, not {}:", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let what = "a user or password in a URL is not sent; \
                headers.request.set = { authorization = \"Basic ${...}\" } is expected";
            return Err(what.to_owned());
        }
        if url.fragment().is_some() {
            return Err("a URL without `#` is expected".to_owned());
        }
        Ok((url, text.to_owned()))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^https?://" })
    }
}

/// A URL, or what leads to one from another. It may hold a key, too.
pub(in crate::config) struct Reference;

impl Spelling for Reference {
    type Value = String;
    const EXPECTED: &'static str = "a path such as \"/tools/list\"";

    fn read(text: &str) -> Result<String, String> {
        if text.trim().is_empty() {
            return Err(format!("{} is expected", Self::EXPECTED));
        }
        if text.contains('#') {
            return Err("a URL without `#` is expected".to_owned());
        }
        Ok(text.to_owned())
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "pattern": "^[^#]*$", "examples": ["/tools/list"] })
    }
}

/// What nobody is to see.
pub(in crate::config) struct Hidden;

impl Spelling for Hidden {
    type Value = Secret;
    const EXPECTED: &'static str = "a string such as \"${TOKEN}\"";

    fn read(text: &str) -> Result<Secret, String> {
        if text.is_empty() {
            return Err("more than an empty string is expected".to_owned());
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token without spaces and other signs than ASCII is expected".to_owned());
        }
        Ok(Secret::new(text.to_owned()))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "examples": ["${TOKEN}"] })
    }
}

/// The path of a route.
pub(in crate::config) struct RoutePath;

impl Spelling for RoutePath {
    type Value = String;
    const EXPECTED: &'static str = "a path such as \"/reports\"";

    fn read(text: &str) -> Result<String, String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/".contains(c);
        let near: String = text.chars().filter(|c| is_part(*c)).collect();
        let parts: Vec<&str> =
            near.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
        let near = format!("/{}", parts.join("/"));
        if near == text && text.len() > 1 {
            return Ok(near);
        }
        let near = if near.len() > 1 { &*near } else { "/reports" };
        Err(format!("{text:?} is no path of a route; one such as {near:?} is expected"))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^/[^?#%]*[^?#%/]$", "examples": ["/reports"] })
    }
}

/// A repair of answers, by name.
pub(in crate::config) struct AnswerRepair;

impl Spelling for AnswerRepair {
    type Value = String;
    const EXPECTED: &'static str = "the name of a repair such as \"response-id\"";

    fn read(text: &str) -> Result<String, String> {
        if ANSWER_REPAIRS.contains(&text) {
            return Ok(text.to_owned());
        }
        Err(match nearest(text, ANSWER_REPAIRS) {
            Some(near) => format!("{text:?} is no repair; did you mean {near:?}?"),
            None => {
                format!("{text:?} is no repair; one of {} is expected", ANSWER_REPAIRS.join(", "))
            }
        })
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "enum": ANSWER_REPAIRS })
    }
}

/// A JSON Pointer into a message.
pub(in crate::config) struct JsonPointer;

impl Spelling for JsonPointer {
    type Value = Pointer;
    const EXPECTED: &'static str = "a JSON Pointer such as \"/params/percent\"";

    fn read(text: &str) -> Result<Pointer, String> {
        Pointer::read(text)
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^/", "examples": ["/params/percent"] })
    }
}
