//! A route file as it is written. Its JSON Schema is made from these types and their comments.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostics::{ConfigError, reject};
use super::keys::{
    AdminSchema, DefaultsSchema, RouteSection, RouteTableSchema, ScopeTable, ServerSchema,
    SettingsTable, StateSchema, read, read_table,
};
use super::route::{Admin, Server, ServerInfo, StateSettings};
use crate::config::values::compound::{FinalSection, OneOrMore, Sources};
use crate::config::values::text::{JsonPointer, OneOf, Reference, TextValue};
use crate::progress::dialect;

/// The routes of `milepost serve`, and settings for `milepost wrap --config`.
#[derive(Default, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    /// The listener for clients, and the clients that it accepts.
    #[schemars(with = "ServerSchema")]
    pub(super) server: ScopeTable<Server>,
    /// The admin listener, for operators. Without this table there is none.
    #[schemars(with = "Option<AdminSchema>")]
    pub(super) admin: Option<ScopeTable<Admin>>,
    /// The folder for data that outlives the process.
    #[schemars(with = "StateSchema")]
    pub(super) state: ScopeTable<StateSettings>,
    /// What holds for every route unless it says otherwise.
    #[schemars(with = "DefaultsSchema")]
    pub(super) defaults: SettingsTable,
    /// The routes, each with a path and an upstream.
    #[schemars(with = "Vec<RouteTableSchema>")]
    pub(super) route: Vec<RouteSection>,
    /// Ways of saying "progress" that are not built in.
    #[schemars(with = "Vec<DialectTable>")]
    pub(super) dialect: Vec<Spanned<DialectTable>>,
}

/// The keys of a route file.
const KEYS: [&str; 6] = ["server", "admin", "state", "defaults", "route", "dialect"];

impl File {
    /// Reads a file.
    pub(super) fn read(table: Spanned<DeTable<'_>>) -> Result<Self, ConfigError> {
        let mut file = Self::default();
        let table = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        read_table(table, "a table", Some(&KEYS), &mut |key, value| {
            match &**key.get_ref() {
                "server" => {
                    file.server =
                        ScopeTable::read(value, "a table such as { listen = \"127.0.0.1:7332\" }")?
                }
                "admin" => {
                    file.admin = Some(ScopeTable::read(
                        value,
                        "a table such as { listen = \"127.0.0.1:7333\" }",
                    )?)
                }
                "state" => {
                    file.state = ScopeTable::read(value, "a table such as { dir = \"state\" }")?
                }
                "defaults" => file.defaults = SettingsTable::defaults(value)?,
                "dialect" => file.dialect = read(value)?,
                _ => {
                    let DeValue::Array(routes) = value.get_ref() else {
                        return Err(reject(value, "a sequence"));
                    };
                    let routes = routes.iter().cloned().map(RouteSection::read);
                    file.route = routes.collect::<Result<_, _>>()?;
                }
            }
            Ok(())
        })?;
        Ok(file)
    }
}

/// What is answered in the place of a server: `initialize`, `ping`, notifications, and every method
/// but `tools/call` and `tools/list`. Its URLs may be relative to `url` and are of the same origin.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { tools = \"/tools/list\" }, or {}"
)]
#[schemars(rename = "Lifecycle")]
pub(super) struct LifecycleSection {
    /// Where the list of tools is read, with a GET: `{"tools":[...]}` or an array. Default: it is asked
    /// for at `url`, with `tools/list`.
    #[schemars(with = "Option<TextValue<Reference>>")]
    pub(super) tools: Option<Spanned<TextValue<Reference>>>,
    /// Where the server is told of clients, with a POST: what it answers there says who it is. Default:
    /// it is not told.
    #[schemars(with = "Option<TextValue<Reference>>")]
    pub(super) initialize: Option<Spanned<TextValue<Reference>>>,
    /// Who the server is, for clients. Default: what it says at `initialize`, or its address.
    pub(super) server: Option<ServerInfo>,
    /// Whether results of tools that are bare payloads are wrapped as the specification has it. Default:
    /// true.
    pub(super) wrap_results: Option<bool>,
    /// Whether a stream is over with the last answer, also if the server leaves it open. Default: true.
    pub(super) end_with_answer: Option<bool>,
}

/// What is done to headers.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { request = { remove = [\"cookie\"] } }"
)]
#[schemars(rename = "Headers")]
pub(super) struct HeadersSection {
    /// Those of requests, on their way to the upstream.
    pub(super) request: HeaderRulesSection,
    /// Those of responses, on their way to the client.
    pub(super) response: HeaderRulesSection,
}

/// What is done to the headers of one direction.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { set = { x-team = \"core\" }, remove = [\"cookie\"] }"
)]
#[schemars(rename = "HeaderRules")]
pub(super) struct HeaderRulesSection {
    /// Headers that are set, whatever they were.
    #[schemars(with = "BTreeMap<String, String>")]
    pub(super) set: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Headers that are taken out.
    #[schemars(with = "Vec<String>")]
    pub(super) remove: Vec<Spanned<String>>,
}

/// A way of saying "progress" that is not built in: JSON Pointers (RFC 6901) to what its messages
/// say. A `#` at the end of a part descends into JSON that stands in a string:
/// "/params/content/0/text#/percentComplete".
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DialectTable {
    /// Its name, for `dialects` of routes.
    #[schemars(with = "String")]
    pub(super) name: Spanned<String>,
    /// The method of its notifications, or several. Either this or `source` is there.
    #[schemars(with = "Option<OneOrMore>")]
    pub(super) method: Option<Spanned<OneOrMore>>,
    /// Where the server writes lines that are JSON objects: on its standard error (stderr), among its
    /// messages (stdout), or in the `data` of log notifications (log); or several of these. The pointers
    /// then begin at the object.
    #[schemars(with = "Option<Sources>")]
    pub(super) source: Option<Spanned<Sources>>,
    /// The id of the request that a message is about.
    pub(super) request_id: Option<TextValue<JsonPointer>>,
    /// What stands where the progress token belongs.
    pub(super) token: Option<TextValue<JsonPointer>>,
    /// The figure: a number, also in a string, or "45%" or "234/520".
    pub(super) progress: Option<TextValue<JsonPointer>>,
    /// The total of the figure.
    pub(super) total: Option<TextValue<JsonPointer>>,
    /// The words.
    pub(super) message: Option<TextValue<JsonPointer>>,
    /// What marks the last message of a call: a pointer to `true`, or a pointer and the value there.
    #[serde(rename = "final")]
    pub(super) last: Option<FinalSection>,
    /// What a figure without total counts: hundredths (percent), parts of one (unit), or not known
    /// (raw). Default: "raw".
    pub(super) scale: Option<TextValue<OneOf<dialect::Count>>>,
}
