//! A route file as it is written. Its JSON Schema is made from these types and their comments.

use std::collections::BTreeMap;
use std::ops::Range;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostics::{ConfigError, reject};
use super::fleet::FleetSettings;
use super::keys::{RouteSection, ScopeTable, SettingsTable, read, read_table};
use super::lifecycle::ServerInfo;
use super::route::{Admin, Server, StateSettings};
#[cfg(test)]
use super::table_schemas::{
    AdminSchema, DefaultsSchema, FleetSchema, RouteTableSchema, ServerSchema, StateSchema,
};
use crate::config::values::compound::{FinalSection, HeaderText, OneOrMore, Sources};
use crate::config::values::text::{JsonPointer, OneOf, Reference, TextValue};
use crate::progress::dialect;

/// The routes of `milepost serve`, and settings for `milepost wrap --config`.
#[derive(Default)]
#[cfg_attr(test, derive(JsonSchema), schemars(deny_unknown_fields, default))]
pub(super) struct File {
    /// The listener for clients, and the clients that it accepts.
    #[cfg_attr(test, schemars(with = "ServerSchema"))]
    pub(super) server: ScopeTable<Server>,
    /// The admin listener, for operators. Without this table there is no admin listener.
    #[cfg_attr(test, schemars(with = "Option<AdminSchema>"))]
    pub(super) admin: Option<ScopeTable<Admin>>,
    /// The other replicas of this proxy, behind the same balancer. Without this table a replica is alone.
    #[cfg_attr(test, schemars(with = "Option<FleetSchema>"))]
    pub(super) fleet: Option<ScopeTable<FleetSettings>>,
    /// The folder for data that outlives the process.
    #[cfg_attr(test, schemars(with = "StateSchema"))]
    pub(super) state: ScopeTable<StateSettings>,
    /// Settings for all routes. Each key may also stand in a route, where it goes before this table.
    #[cfg_attr(test, schemars(with = "DefaultsSchema"))]
    pub(super) defaults: SettingsTable,
    /// The routes, each with a path and an upstream.
    #[cfg_attr(test, schemars(with = "Vec<RouteTableSchema>"))]
    pub(super) route: Vec<RouteSection>,
    /// Dialects of progress that are not built in.
    #[cfg_attr(test, schemars(with = "Vec<DialectTable>"))]
    pub(super) dialect: Vec<Spanned<DialectTable>>,
}

/// The keys of a route file.
const KEYS: [&str; 7] = ["server", "admin", "fleet", "state", "defaults", "route", "dialect"];

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
                "fleet" => {
                    file.fleet = Some(ScopeTable::read(
                        value,
                        "a table such as { key = [\"${FLEET_KEY}\"], advertise = \"10.0.0.1:7334\" }",
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

/// Answers in the place of a server: to `initialize`, `ping`, notifications, and every method but
/// `tools/call` and `tools/list`. URLs may be relative to `url` and are of the same origin.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { tools = \"/tools/list\" }, or {}"
)]
#[cfg_attr(test, schemars(rename = "Lifecycle"))]
pub(super) struct LifecycleSection {
    /// The URL of the list of tools, read with a GET: `{"tools":[...]}` or an array. Default: the list
    /// is requested at `url`, with `tools/list`.
    #[cfg_attr(test, schemars(with = "Option<TextValue<Reference>>"))]
    pub(super) tools: Option<Spanned<TextValue<Reference>>>,
    /// The URL where Milepost reports new clients, with a POST; the response names the server. Default:
    /// clients are not reported.
    #[cfg_attr(test, schemars(with = "Option<TextValue<Reference>>"))]
    pub(super) initialize: Option<Spanned<TextValue<Reference>>>,
    /// The name and version of the server, for clients. Default: those of its response at `initialize`,
    /// or its address.
    pub(super) server: Option<ServerInfo>,
    /// Bare payloads in the place of tool results are wrapped as the specification requires. Default: true.
    pub(super) wrap_results: Option<bool>,
    /// A stream ends with the last answer, also if the server leaves the stream open. Default: true.
    pub(super) end_with_answer: Option<bool>,
}

/// Changes of headers.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { request = { remove = [\"cookie\"] } }"
)]
#[cfg_attr(test, schemars(rename = "Headers"))]
pub(super) struct HeadersSection {
    /// Changes of the headers of requests, on their way to the upstream.
    pub(super) request: HeaderRulesSection,
    /// Changes of the headers of responses, on their way to the client.
    pub(super) response: HeaderRulesSection,
}

/// Changes of the headers of one direction.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { set = { x-team = \"core\" }, remove = [\"cookie\"] }"
)]
#[cfg_attr(test, schemars(rename = "HeaderRules"))]
pub(super) struct HeaderRulesSection {
    /// Headers that are set, whatever their value was: a text, or { bearer_file = "/run/secrets/token" } of
    /// `headers.request`, which is `Bearer ` and the content of the file, read again when the file changes.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, HeaderText>"))]
    pub(super) set: BTreeMap<Spanned<String>, Spanned<HeaderText>>,
    /// Headers that are removed.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) remove: Vec<Spanned<String>>,
    /// Of `headers.response` only: whether the paths of cookies that the upstream sets are the route's, as
    /// clients know the route. Default: false.
    #[cfg_attr(test, schemars(with = "bool"))]
    pub(super) cookie_path: Option<Spanned<bool>>,
}

impl HeaderRulesSection {
    /// The place of the first value that is the token of a file.
    pub(super) fn bearer_file(&self) -> Option<Range<usize>> {
        let is_file =
            |value: &&Spanned<HeaderText>| matches!(value.get_ref(), HeaderText::BearerFile(_));
        self.set.values().find(is_file).map(Spanned::span)
    }
}

/// A dialect of progress that is not built in: JSON Pointers (RFC 6901) to the parts of its messages. A
/// `#` at the end of a part descends into JSON in a string: "/params/content/0/text#/percentComplete".
#[derive(Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct DialectTable {
    /// The name, for `dialects` of routes.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) name: Spanned<String>,
    /// The method of the notifications, or several methods. A dialect has either `method` or `source`.
    #[cfg_attr(test, schemars(with = "Option<OneOrMore>"))]
    pub(super) method: Option<Spanned<OneOrMore>>,
    /// The place of lines that are JSON objects: standard error (stderr), lines among the messages
    /// (stdout), or the `data` of log notifications (log); or several places. The pointers then begin at
    /// the object.
    #[cfg_attr(test, schemars(with = "Option<Sources>"))]
    pub(super) source: Option<Spanned<Sources>>,
    /// The id of the request.
    pub(super) request_id: Option<TextValue<JsonPointer>>,
    /// The value in the place of the progress token.
    pub(super) token: Option<TextValue<JsonPointer>>,
    /// The value: a number, also in a string, or "45%" or "234/520".
    pub(super) progress: Option<TextValue<JsonPointer>>,
    /// The total of the value.
    pub(super) total: Option<TextValue<JsonPointer>>,
    /// The text.
    pub(super) message: Option<TextValue<JsonPointer>>,
    /// The mark of the last message of a call: a pointer to `true`, or a pointer and the value there.
    #[serde(rename = "final")]
    pub(super) last: Option<FinalSection>,
    /// The scale of a value without a total: hundredths (percent), parts of one (unit), or not known
    /// (raw). Default: "raw".
    pub(super) scale: Option<TextValue<OneOf<dialect::Count>>>,
}
