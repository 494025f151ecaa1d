//! A route file as it is written. Its JSON Schema is made from these types and their comments.

use std::collections::BTreeMap;
use std::ops::Range;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fleet::FleetSettings;
use super::keys::{RouteSection, RouteSettings, ScopeTable};
use super::lifecycle::ServerInfo;
use super::route::{Admin, Server, StateSettings};
#[cfg(test)]
use super::table_schemas::{
    AdminSchema, DefaultsSchema, FleetSchema, RouteTableSchema, ServerSchema, StateSchema,
};
use crate::config::values::compound::HeaderText;
use crate::config::values::text::Reference;
use crate::policy_file::diagnostics::{ConfigError, reject};
use crate::policy_file::dialects::DialectTable;
use crate::policy_file::table::{read, read_table};
use crate::policy_file::text::TextValue;

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
    /// Settings for all routes. Each key may also be set in a route, which takes precedence over this table.
    #[cfg_attr(test, schemars(with = "DefaultsSchema"))]
    pub(super) defaults: RouteSettings,
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
                "defaults" => file.defaults = RouteSettings::defaults(value)?,
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
    /// Headers that are set, replacing any earlier value: a text, or, only in `headers.request`,
    /// { bearer_file = "/run/secrets/token" }, which is `Bearer ` and the content of the file, read again when the
    /// file changes.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, HeaderText>"))]
    pub(super) set: BTreeMap<Spanned<String>, Spanned<HeaderText>>,
    /// Headers that are removed.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) remove: Vec<Spanned<String>>,
    /// Only in `headers.response`: whether the paths of the upstream's cookies are changed to the route's path.
    /// Default: false.
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
