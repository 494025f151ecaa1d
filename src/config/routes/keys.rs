//! Routes, the defaults of a route file and single tools as they are written: tables of settings.
//!
//! The keys of settings come from their declarations. serde cannot flatten one table into another that
//! refuses unknown keys, so these tables are read by hand.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};
use toml::Spanned;

use super::file::{Headers, Upstream};
use super::route::Route;
use crate::config::settings::{Change, Scope, Settings};
use crate::config::values::text::{RoutePath, Spelling, Text};
use crate::progress::{CallPolicy, Policy};

/// What a key says, if it is there.
pub(super) fn said<S: Spelling<Value: Clone>>(key: &Option<Text<S>>) -> Option<S::Value> {
    key.as_ref().map(|text| text.0.clone())
}

/// The key of dialects, whose names are looked up when the whole file is read.
const DIALECTS: &str = "dialects";

/// Tables of settings within a table: the name, the type in the JSON Schema for a route and for a tool,
/// what it is for and what is expected there.
const GROUPS: [Group; 2] = [
    Group {
        name: "heartbeat",
        types: ["Heartbeat", "Heartbeat"],
        key_docs: ["When silences of a call are broken."; 2],
        docs: ["When silences of a call are broken (only calls of tools, only with a progress token).";
            2],
        expected: "a table such as { enabled = false }",
    },
    Group {
        name: "ask",
        types: ["RouteAsk", "ToolAsk"],
        key_docs: [
            "What is put into requests, for servers that report nothing without it.",
            "What is put into its calls, for servers that report nothing without it.",
        ],
        docs: [
            "What is put into the requests of clients, for servers that report nothing without it.",
            "What is put into the calls of one tool.",
        ],
        expected: "a table such as { token_type = \"string\" }",
    },
];

struct Group {
    name: &'static str,
    types: [&'static str; 2],
    key_docs: [&'static str; 2],
    docs: [&'static str; 2],
    expected: &'static str,
}

/// A table that holds settings.
pub(super) trait Table {
    /// Whether it holds the settings of a route, and not of a tool alone.
    const IS_ROUTE: bool;
    /// The keys that are no settings.
    const KEYS: &'static [&'static str];

    /// Where its settings are put.
    fn settings(&mut self) -> &mut TableSettings;
    /// Reads one of its keys that are no settings.
    fn read_key<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// The settings of a table.
#[derive(Default)]
pub(super) struct TableSettings {
    dialects: Option<Vec<Spanned<String>>>,
    connection: Vec<Change<Route>>,
    route: Vec<Change<Policy>>,
    call: Vec<Change<CallPolicy>>,
}

impl TableSettings {
    /// Reads the value of a key that is known to be a setting.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        if key == DIALECTS {
            self.dialects = Some(map.next_value()?);
        } else if let Some(change) = CallPolicy::read(key, map)? {
            self.call.push(change);
        } else if let Some(change) = Policy::read(key, map)? {
            self.route.push(change);
        } else if let Some(change) = Route::read(key, map)? {
            self.connection.push(change);
        }
        Ok(())
    }
}

/// The keys of settings, within a group or outside of all.
fn keys(is_route: bool, group: Option<&str>) -> Vec<&'static str> {
    fn of<S: Scope>() -> impl Iterator<Item = &'static str> {
        S::SETTINGS.iter().map(|setting| setting.key)
    }
    let of_route = of::<Policy>().chain(of::<Route>()).filter(|_| is_route);
    let all = of::<CallPolicy>().chain(of_route);
    let mut keys: Vec<&str> = all
        .filter_map(|key| match (key.split_once('.'), group) {
            (Some((table, key)), Some(group)) => (table == group).then_some(key),
            (Some((table, _)), None) => Some(table),
            (None, group) => group.is_none().then_some(key),
        })
        .collect();
    keys.dedup();
    keys
}

/// A key that is one of those that are known.
struct Known<'a>(&'a [&'static str]);

impl<'de> DeserializeSeed<'de> for Known<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        let key = String::deserialize(from)?;
        if self.0.contains(&&*key) {
            return Ok(key);
        }
        let known: Vec<String> = self.0.iter().map(|key| format!("`{key}`")).collect();
        let known = known.join(", ");
        Err(D::Error::custom(format!("unknown field `{key}`, expected one of {known}")))
    }
}

/// Reads a table.
struct Reader<T>(PhantomData<T>);

impl<'de, T: Table + Default> Visitor<'de> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut table = T::default();
        let known: Vec<_> = T::KEYS.iter().copied().chain(keys(T::IS_ROUTE, None)).collect();
        while let Some(key) = map.next_key_seed(Known(&known))? {
            if T::KEYS.contains(&&*key) {
                table.read_key(&key, &mut map)?;
            } else if let Some(group) = GROUPS.iter().find(|group| group.name == key) {
                let settings = table.settings();
                map.next_value_seed(GroupReader { group, is_route: T::IS_ROUTE, settings })?;
            } else {
                table.settings().read(&key, &mut map)?;
            }
        }
        Ok(table)
    }
}

/// Reads a group of settings.
struct GroupReader<'a> {
    group: &'static Group,
    is_route: bool,
    settings: &'a mut TableSettings,
}

impl<'de> DeserializeSeed<'de> for GroupReader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for GroupReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.group.expected)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let known = keys(self.is_route, Some(self.group.name));
        while let Some(key) = map.next_key_seed(Known(&known))? {
            self.settings.read(&format!("{}.{key}", self.group.name), &mut map)?;
        }
        Ok(())
    }
}

/// The JSON Schema of a table: `keys` that are no settings, and the settings.
fn schema(
    generator: &mut SchemaGenerator,
    doc: &str,
    is_route: bool,
    mut keys: Map<String, Value>,
) -> Schema {
    fn add<S: Scope>(keys: &mut Map<String, Value>, group: &str, generator: &mut SchemaGenerator) {
        for setting in S::SETTINGS {
            let (table, key) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
            if table == group {
                let schema = (setting.schema)(generator);
                keys.insert(key.to_owned(), described(schema, &setting.description()));
            }
        }
    }
    let which = usize::from(!is_route);
    for group in &GROUPS {
        let mut settings = Map::new();
        add::<CallPolicy>(&mut settings, group.name, generator);
        if is_route {
            add::<Policy>(&mut settings, group.name, generator);
        }
        let name = group.types[which];
        let schema = object(group.docs[which], settings);
        generator.definitions_mut().insert(name.to_owned(), schema.into());
        let reference = json_schema!({ "$ref": format!("#/$defs/{name}") });
        keys.insert(group.name.to_owned(), described(reference, group.key_docs[which]));
    }
    add::<CallPolicy>(&mut keys, "", generator);
    if is_route {
        add::<Policy>(&mut keys, "", generator);
        add::<Route>(&mut keys, "", generator);
    }
    object(doc, keys)
}

fn object(doc: &str, keys: Map<String, Value>) -> Schema {
    json_schema!({
        "description": doc,
        "type": "object",
        "properties": keys,
        "additionalProperties": false,
    })
}

fn described(mut schema: Schema, doc: &str) -> Value {
    schema.insert("description".to_owned(), doc.into());
    schema.into()
}

/// A table that holds settings, with its keys that are none: each with the type that reads it and the
/// type that describes it.
macro_rules! table {
    (
        #[doc = $doc:literal] $name:ident, is_route: $is_route:literal, required: $required:expr;
        $(#[doc = $key_doc:literal] $key:ident: $type:ty, $described:ty;)*
    ) => {
        #[doc = $doc]
        #[derive(Default)]
        pub(super) struct $name {
            settings: TableSettings,
            $(pub(super) $key: $type,)*
        }

        impl Table for $name {
            const IS_ROUTE: bool = $is_route;
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            fn settings(&mut self) -> &mut TableSettings {
                &mut self.settings
            }

            fn read_key<'de, A: MapAccess<'de>>(
                &mut self,
                key: &str,
                _map: &mut A,
            ) -> Result<(), A::Error> {
                match key {
                    $(stringify!($key) => self.$key = _map.next_value()?,)*
                    _ => {}
                }
                Ok(())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_map(Reader(PhantomData))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let keys: Vec<(&str, Value)> = vec![$((
                    stringify!($key),
                    described(generator.subschema_for::<$described>(), $key_doc.trim()),
                )),*];
                let keys = keys.into_iter().map(|(key, schema)| (key.to_owned(), schema));
                let mut schema = schema(generator, $doc.trim(), $is_route, keys.collect());
                let required: &[&str] = $required;
                if !required.is_empty() {
                    schema.insert("required".to_owned(), required.into());
                }
                schema
            }
        }
    };
}

table! {
    /// Settings of one tool, over those of its route.
    Tool, is_route: false, required: &[];
}

table! {
    /// What holds for every route unless it says otherwise.
    Defaults, is_route: true, required: &[];
    /// Settings of single tools, by name.
    tools: BTreeMap<String, Tool>, BTreeMap<String, Tool>;
}

table! {
    /// A server, where clients find it and how its progress is treated.
    RouteTable, is_route: true, required: &["path", "upstream"];
    /// Where clients find it; its name. HTTP+SSE clients find it at PATH/sse.
    path: Option<Spanned<Text<RoutePath>>>, Text<RoutePath>;
    /// What stands behind it: `demo`, `command`, or `url` and `sse`.
    upstream: Option<Spanned<Upstream>>, Upstream;
    /// Whether it is only piped: nothing of it is read or changed. Default: false.
    opaque: Option<Spanned<bool>>, bool;
    /// What is done to headers. Hop-by-hop headers never pass.
    headers: Headers, Headers;
    /// Settings of single tools, by name.
    tools: BTreeMap<String, Tool>, BTreeMap<String, Tool>;
}

/// The settings of a route or of `[defaults]`, with those of single tools.
#[derive(Clone, Copy)]
pub(super) struct RouteSettings<'a> {
    settings: &'a TableSettings,
    tools: &'a BTreeMap<String, Tool>,
}

impl Defaults {
    /// The settings of every route.
    pub(super) fn all(&self) -> RouteSettings<'_> {
        RouteSettings { settings: &self.settings, tools: &self.tools }
    }
}

impl RouteTable {
    /// The settings of the route.
    pub(super) fn all(&self) -> RouteSettings<'_> {
        RouteSettings { settings: &self.settings, tools: &self.tools }
    }
}

impl<'a> RouteSettings<'a> {
    /// How progress is treated; the dialects are looked up elsewhere.
    pub(super) fn settings(self) -> Settings {
        let tools =
            self.tools.iter().map(|(name, tool)| (name.clone(), tool.settings.call.clone()));
        Settings {
            route: self.settings.route.clone(),
            call: self.settings.call.clone(),
            tools: tools.collect(),
        }
    }

    /// The names of dialects: the table's own, and those of single tools.
    pub(super) fn dialects(self) -> impl Iterator<Item = (Option<&'a str>, &'a [Spanned<String>])> {
        let of_tool =
            |(name, tool): (&'a String, &'a Tool)| (Some(&**name), &tool.settings.dialects);
        let all = std::iter::once((None, &self.settings.dialects));
        let all = all.chain(self.tools.iter().map(of_tool));
        all.filter_map(|(tool, names)| Some((tool, names.as_deref()?)))
    }

    /// Lays the settings of connections and limits over `route`.
    pub(super) fn merge_into(self, route: &mut Route) {
        self.settings.connection.iter().for_each(|change| change.apply(route));
    }
}
