//! `ask`: what is put into requests, as it is written and as it is printed.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

use super::keys::said;
use super::print::{key, list, table, word};
use crate::config::routes::values::{LevelOrOff, OneOf, Text};
use crate::config::settings::{AskSettings, OFF, checked_meta};
use crate::progress::policy::ask::{Ask, LogLevel, Members, TokenType};

/// What toml calls a date where serde asks for a value of any kind.
const DATE: &str = "$__toml_private_datetime";

/// Members of a JSON object, as a table.
#[derive(Clone)]
pub(super) struct Object(Members);

impl<'de> Deserialize<'de> for Object {
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

impl JsonSchema for Object {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Object".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

/// Members of `_meta`.
#[derive(Clone)]
struct Meta(Members);

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Object(members) = Object::deserialize(from)?;
        checked_meta(members).map(Self).map_err(D::Error::custom)
    }
}

/// A table of a route, or of one of its tools.
macro_rules! with_ask_keys {
    ($(#[$attribute:meta])* struct $name:ident { $($own:tt)* }) => {
        #[derive(Default, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default, expecting = "a table such as { token_type = \"string\" }")]
        $(#[$attribute])*
        pub(super) struct $name {
            /// Whether the token of a call is copied into its arguments, as a string under
            /// `_meta.progressToken`, for servers that look for it there. Default: false.
            token_in_arguments: Option<bool>,
            /// The type of the tokens that the server is given, whatever the client's are. Default:
            /// "same".
            token_type: Option<Text<OneOf<TokenType>>>,
            /// Put into `_meta` of tools/call; what the client says stands. Default: {}.
            #[schemars(with = "Option<Object>")]
            meta: Option<Meta>,
            /// Put into the arguments of tools/call; what the client says stands. Default: {}.
            arguments: Option<Object>,
            $($own)*
        }

        impl $name {
            pub(super) fn settings(&self) -> AskSettings {
                AskSettings {
                    token_in_arguments: self.token_in_arguments,
                    token_type: said(&self.token_type),
                    meta: self.meta.clone().map(|members| members.0),
                    arguments: self.arguments.clone().map(|members| members.0),
                }
            }
        }
    };
}

with_ask_keys! {
    /// What is put into the calls of one tool.
    struct ToolAsk {}
}

with_ask_keys! {
    /// What is put into the requests of clients, for servers that report nothing without it.
    struct RouteAsk {
        /// Put into the client's capabilities; what the client says stands. Default: {}.
        capabilities: Option<Object>,
        /// The log messages that the server is asked for unless the client asks itself; never from
        /// 2026-07-28 on, where a client gets what it has asked for. Default: "off".
        log_level: Option<Text<LevelOrOff>>,
    }
}

impl RouteAsk {
    pub(super) fn capabilities(&self) -> Option<Members> {
        self.capabilities.clone().map(|members| members.0)
    }

    pub(super) fn log_level(&self) -> Option<Option<LogLevel>> {
        said(&self.log_level)
    }
}

/// What is put into calls, by name. `text` writes a string that goes by a name.
pub(super) fn keys(ask: &Ask, text: &dyn Fn(&str, &str) -> String) -> Vec<String> {
    vec![
        format!("token_in_arguments = {}", ask.token_in_arguments),
        format!("token_type = {}", word(ask.token_type)),
        format!("meta = {}", object(&ask.meta, text)),
        format!("arguments = {}", object(&ask.arguments, text)),
    ]
}

/// The log messages that are asked for.
pub(super) fn log_level(level: Option<LogLevel>) -> String {
    level.map_or_else(|| format!("\"{OFF}\""), word)
}

/// Members as a table.
pub(super) fn object(members: &Members, text: &dyn Fn(&str, &str) -> String) -> String {
    table(members.iter().map(|(name, one)| format!("{} = {}", key(name), value(name, one, text))))
}

fn value(name: &str, one: &Value, text: &dyn Fn(&str, &str) -> String) -> String {
    match one {
        Value::String(words) => text(name, words),
        Value::Array(elements) => list(elements.iter().map(|one| value(name, one, text))),
        Value::Object(members) => object(members, text),
        scalar => scalar.to_string(),
    }
}
