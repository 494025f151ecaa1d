//! Values that are strings: their syntax, the errors for other values, and their JSON Schema.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::time::Duration;

#[cfg(test)]
use schemars::{Schema, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use url::Url;

use crate::config::routes::fleet::FleetKey;
use crate::config::routes::route::Secret;
use crate::config::values::ip_net::IpNet;
use crate::config::values::{
    ANSWER_REPAIRS, OFF, Word, byte_size, byte_size_text, exact_time, level_or_off, nearest,
    positive_time, scale, time, time_or_off, word,
};
use crate::progress::Scale;
use crate::progress::dialect::Pointer;
use crate::progress::policy::ask::LogLevel;

/// A way of spelling a value.
pub(crate) trait Spelling: 'static {
    /// The type of the parsed value.
    type Value: Clone;
    /// The expected text, with an example, for errors.
    fn expected() -> String;
    /// Reads the value; the error names the right form.
    fn read(text: &str) -> Result<Self::Value, String>;
    /// The value as text.
    fn spell(value: &Self::Value) -> String;
    /// The value as a word of a recording.
    fn word(value: &Self::Value) -> String {
        Self::spell(value)
    }
    /// All words of the value, if a flag accepts no other text.
    fn choices() -> Vec<&'static str> {
        Vec::new()
    }
    /// The JSON Schema of the value, for editors.
    #[cfg(test)]
    fn schema() -> Schema;
}

/// A string that is spelled in this way.
pub(crate) struct TextValue<S: Spelling>(pub(crate) S::Value);

impl<'de, S: Spelling> Deserialize<'de> for TextValue<S> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<S>(PhantomData<S>);
        impl<S: Spelling> Visitor<'_> for Reader<S> {
            type Value = TextValue<S>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&S::expected())
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<TextValue<S>, E> {
                S::read(text).map(TextValue).map_err(E::custom)
            }
        }
        from.deserialize_str(Reader(PhantomData))
    }
}

/// Reads a list of strings that are spelled in this way.
pub(crate) fn texts<'de, S: Spelling, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<S::Value>, D::Error> {
    Ok(Vec::<TextValue<S>>::deserialize(from)?.into_iter().map(|text| text.0).collect())
}

/// A whole number of at least `MIN`.
#[derive(Clone, Copy)]
pub(crate) struct AtLeast<const MIN: usize>(pub(crate) usize);

impl<const MIN: usize> AtLeast<MIN> {
    /// The number, if it is large enough.
    pub(crate) fn of(number: i64) -> Result<Self, String> {
        let count = usize::try_from(number).ok().filter(|count| *count >= MIN);
        count.map(Self).ok_or_else(|| format!("at least {MIN} is expected"))
    }
}

impl<'de, const MIN: usize> Deserialize<'de> for AtLeast<MIN> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<const MIN: usize>;
        impl<const MIN: usize> Visitor<'_> for Reader<MIN> {
            type Value = AtLeast<MIN>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number of at least {MIN}")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<AtLeast<MIN>, E> {
                AtLeast::of(number).map_err(E::custom)
            }
        }
        from.deserialize_i64(Reader)
    }
}

/// One of a few words.
pub(crate) struct OneOf<T>(PhantomData<T>);

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

    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "enum": Self::choices() })
    }
}

/// Kinds of strings: the type of the value, the expected text, reading and writing, and the JSON
/// Schema.
macro_rules! spellings {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $value:ty, $expected:literal {
            read: $read:expr, spell: $spell:expr, $(word: $word:expr,)? schema: $schema:tt
        }
    )+) => {$(
        $(#[doc = $doc])+
        pub(crate) struct $name;

        impl Spelling for $name {
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

            #[cfg(test)]
            fn schema() -> Schema {
                json_schema!($schema)
            }
        }
    )+};
}

/// The word for an unknown scale.
const RAW: &str = "raw";

/// The pattern of a time; [`time`] also takes longer names of units.
#[cfg(test)]
const TIME: &str = r"^(0|([0-9]+ ?[a-zµ]+ ?)+)$";

spellings! {
    /// A time.
    AnyTime: Duration, "a time such as \"150ms\"" {
        read: time,
        spell: time_text,
        word: |time: &Duration| exact_time(*time),
        schema: { "type": "string", "pattern": TIME, "examples": ["150ms", "2s", "1m 30s"] }
    }

    /// A time that is more than none.
    Period: Duration, "a time such as \"5s\"" {
        read: positive_time,
        spell: time_text,
        word: |time: &Duration| exact_time(*time),
        schema: { "type": "string", "pattern": TIME, "examples": ["5s", "2m"] }
    }

    /// A number of bytes.
    ByteSize: usize, "a size such as \"64MiB\"" {
        read: byte_size,
        spell: |bytes: &usize| byte_size_text(*bytes),
        schema: { "type": "string", "pattern": "^[0-9]+(KiB|MiB|GiB)?$", "examples": ["16MiB", "1GiB"] }
    }

    /// A JSON Pointer into the arguments of a call.
    ArgumentPointer: String, "a JSON Pointer such as \"/request_id\"" {
        read: |text: &str| Pointer::read(text).map(|_| text.to_owned()),
        spell: String::clone,
        schema: { "type": "string", "pattern": "^(/([^~]|~[01])*)+$", "examples": ["/request_id", "/trace/id"] }
    }

    /// A time, or `off`.
    TimeOrOff: Option<Duration>, "a time such as \"15s\", or \"off\"" {
        read: time_or_off,
        spell: |limit: &Option<Duration>| or_off(limit.as_ref().map(time_text)),
        word: |limit: &Option<Duration>| or_off(limit.map(exact_time)),
        schema: {
            "type": "string",
            "pattern": format!("{TIME}|^{OFF}$"),
            "examples": ["15s", OFF],
        }
    }

    /// A level of log messages, or `off`.
    LevelOrOff: Option<LogLevel>, "a level such as \"info\", or \"off\"" {
        read: level_or_off,
        spell: |level: &Option<LogLevel>| or_off(level.map(|level| word(level).to_owned())),
        schema: {
            "type": "string",
            "enum": LogLevel::WORDS.iter().map(|(name, _)| *name).chain([OFF]).collect::<Vec<_>>(),
        }
    }

    /// The scale of a value without a total; `raw`: the scale is unknown.
    AnyScale: Option<Scale>, "\"percent\", \"unit\", a total such as \"250\", or \"raw\"" {
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

    /// The address of a listener.
    Address: SocketAddr, "an address such as \"127.0.0.1:7332\"" {
        read: address,
        spell: ToString::to_string,
        schema: {
            "type": "string",
            "pattern": ":[0-9]+$",
            "examples": ["127.0.0.1:7332", "[::1]:7332"],
        }
    }

    /// A host as clients name it, with or without a port.
    HostText: String, "a host name such as \"mcp.example.com\"" {
        read: host_name,
        spell: String::clone,
        schema: { "type": "string", "pattern": r"^[A-Za-z0-9._:\[\]-]+$" }
    }

    /// An address or a net of addresses.
    NetText: IpNet, "an address or a net such as \"10.0.0.0/8\"" {
        read: IpNet::read,
        spell: ToString::to_string,
        schema: {
            "type": "string",
            "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$",
            "examples": ["10.0.0.7", "10.0.0.0/8", "fd00::/8"],
        }
    }

    /// The origin of a page in a browser.
    OriginText: String, "an origin such as \"https://app.example.com\"" {
        read: origin,
        spell: String::clone,
        schema: { "type": "string", "pattern": "^[A-Za-z0-9+.-]+://[^/?#]+$" }
    }

    /// An origin, or `*`.
    OriginOrAny: String, "an origin such as \"https://app.example.com\", or \"*\"" {
        read: |text| if text == "*" { Ok("*".to_owned()) } else { origin(text) },
        spell: String::clone,
        schema: { "type": "string", "pattern": r"^(\*|[A-Za-z0-9+.-]+://[^/?#]+)$" }
    }

    /// An HTTP endpoint, also as written. Its errors do not show the URL, which may hold a key.
    Endpoint: (Url, String), "a URL such as \"https://example.com/mcp\"" {
        read: endpoint,
        spell: |(_, text): &(Url, String)| text.clone(),
        schema: { "type": "string", "pattern": "^https?://" }
    }

    /// A URL that clients use, without the slash at its end.
    PublicUrl: Url, "a URL such as \"https://mcp.example.com/tools\"" {
        read: public_url,
        spell: |url: &Url| url.as_str().trim_end_matches('/').to_owned(),
        schema: { "type": "string", "pattern": "^https?://[^?#]+$" }
    }

    /// A URL, also relative to another URL. The URL may hold a key.
    Reference: String, "a path such as \"/tools/list\"" {
        read: |text: &str| match text {
            text if text.trim().is_empty() => Err(format!("{} is expected", Self::expected())),
            text if text.contains('#') => Err("a URL without `#` is expected".to_owned()),
            text => Ok(text.to_owned()),
        },
        spell: String::clone,
        schema: {
            "type": "string",
            "minLength": 1,
            "pattern": "^[^#]*$",
            "examples": ["/tools/list"],
        }
    }

    /// A secret, which is never shown.
    Hidden: Secret, "a string such as \"${TOKEN}\"" {
        read: |text: &str| match text {
            "" => Err("more than an empty string is expected".to_owned()),
            text if text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(Secret::new(text.to_owned()))
            }
            _ => Err("a token of ASCII characters without spaces is expected".to_owned()),
        },
        spell: |secret: &Secret| format!("{secret:?}"),
        schema: { "type": "string", "minLength": 1, "examples": ["${TOKEN}"] }
    }

    /// A key of a fleet, which is never shown.
    FleetKeyText: FleetKey, "64 hexadecimal digits such as \"${FLEET_KEY}\"" {
        read: FleetKey::read,
        spell: |key: &FleetKey| format!("{key:?}"),
        schema: { "type": "string", "examples": ["${FLEET_KEY}"] }
    }

    /// The path of a route.
    RoutePath: String, "a path such as \"/reports\"" {
        read: route_path,
        spell: String::clone,
        schema: { "type": "string", "pattern": "^/[^?#%]*[^?#%/]$", "examples": ["/reports"] }
    }

    /// A repair of answers, by name.
    AnswerRepair: String, "the name of a repair such as \"response-id\"" {
        read: answer_repair,
        spell: String::clone,
        schema: { "type": "string", "enum": ANSWER_REPAIRS }
    }

    /// A JSON Pointer into a message.
    JsonPointer: Pointer, "a JSON Pointer such as \"/params/percent\"" {
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

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
        let port = port.unwrap_or("7332");
        format!(
            "{text:?} is not an address with a port; one such as \"127.0.0.1:{port}\" is expected"
        )
    })
}

fn host_name(text: &str) -> Result<String, String> {
    let is_name = |text: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        !text.is_empty() && text.chars().all(is_part)
    };
    if is_name(text) {
        return Ok(text.to_owned());
    }
    let inner = text.split_once("://").map_or(text, |(_, host)| host);
    let inner = inner.split(['/', '?', '#']).next().unwrap_or_default();
    let inner = if is_name(inner) { inner } else { "mcp.example.com" };
    Err(format!("{text:?} is not a host name; one such as {inner:?} is expected"))
}

fn origin(text: &str) -> Result<String, String> {
    let is_scheme = |scheme: &str| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if is_scheme(scheme) && host_name(host).is_ok() {
        let origin = format!("{scheme}://{host}").to_ascii_lowercase();
        if origin == text.to_ascii_lowercase() {
            return Ok(origin);
        }
        return Err(format!("{text:?} is not an origin; did you mean {origin:?}?"));
    }
    Err(format!("{text:?} is not an origin; one such as \"https://app.example.com\" is expected"))
}

fn endpoint(text: &str) -> Result<(Url, String), String> {
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

fn public_url(text: &str) -> Result<Url, String> {
    let (mut url, _) = endpoint(text)?;
    if url.query().is_some() {
        return Err("a URL without `?` is expected".to_owned());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

fn route_path(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/".contains(c);
    let near: String = text.chars().filter(|c| is_part(*c)).collect();
    let parts: Vec<&str> =
        near.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let near = format!("/{}", parts.join("/"));
    if near == text && text.len() > 1 {
        return Ok(near);
    }
    let near = if near.len() > 1 { &*near } else { "/reports" };
    Err(format!("{text:?} is not a path of a route; one such as {near:?} is expected"))
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
