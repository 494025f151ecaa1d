//! The JSON Schemas of the tables that are read by hand.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::file::{HeadersSection, LifecycleSection};
use super::fleet::FleetSettings;
use super::keys::RetiredEngine;
use super::presets::Preset;
use super::route::{Admin, HttpUpstream, Route, Server, StateSettings, StdioUpstream};
use crate::config::values::text::{Endpoint, PublicUrl, RoutePath};
use crate::policy_file::key_groups::GROUPS;
use crate::policy_file::setting::DescribedScope;
use crate::policy_file::table::TableKind;
use crate::policy_file::text::{OneOf, TextValue};
use crate::progress::{CallPolicy, Policy};

/// Adds the settings of a scope to the keys of a table.
fn describe<S: DescribedScope>(
    keys: &mut Map<String, Value>,
    group: &str,
    generator: &mut SchemaGenerator,
) {
    for setting in S::SETTINGS {
        let (table, key) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
        if table == group {
            keys.insert(key.to_owned(), setting.schema(generator).into());
        }
    }
}

/// The name and the error text of a group of keys. Arrays of two have one element for a route and one for a tool.
struct GroupSchema {
    types: [&'static str; 2],
    key_docs: [&'static str; 2],
    docs: [&'static str; 2],
}

/// The schemas of [`GROUPS`], in the same order.
const GROUP_SCHEMAS: [GroupSchema; GROUPS.len()] = [
    GroupSchema {
        types: ["Heartbeat", "Heartbeat"],
        key_docs: ["Heartbeats, which break the silences of a call."; 2],
        docs: ["Heartbeats, which break the silences of tool calls with a progress token."; 2],
    },
    GroupSchema {
        types: ["Late", "Late"],
        key_docs: ["Late answers: the work of a call goes on after its client gave the call up.";
            2],
        docs: ["Late answers to calls that clients give up by their clocks. The table switches them on.";
            2],
    },
    GroupSchema {
        types: ["TaskSettings", "TaskSettings"],
        key_docs: ["Tasks: clients of 2025-11-25 may run calls of tools as tasks."; 2],
        docs: ["Calls that clients run as tasks, where the server has no tasks. The table switches them on.";
            2],
    },
    GroupSchema {
        types: ["RouteAsk", "ToolAsk"],
        key_docs: [
            "Additions to requests, for servers that report nothing unless they are asked.",
            "Additions to calls, for servers that report nothing unless they are asked.",
        ],
        docs: ["Additions to the requests of clients.", "Additions to the calls of one tool."],
    },
];

/// Adds the settings of all tools or of one tool; each group is a table of its own.
fn describe_all_settings(
    keys: &mut Map<String, Value>,
    kind: TableKind,
    generator: &mut SchemaGenerator,
) {
    let which = kind as usize;
    let describe_all = |keys: &mut _, group: &str, generator: &mut _| {
        describe::<CallPolicy>(keys, group, generator);
        if kind == TableKind::Route {
            describe::<Policy>(keys, group, generator);
            describe::<Route>(keys, group, generator);
        }
    };
    for (group, of_group) in GROUPS.iter().zip(&GROUP_SCHEMAS) {
        let (name, mut settings) = (of_group.types[which], Map::new());
        describe_all(&mut settings, group.name, generator);
        let table = object(of_group.docs[which], settings);
        generator.definitions_mut().insert(name.to_owned(), table.into());
        let reference = json_schema!({ "$ref": format!("#/$defs/{name}") });
        keys.insert(group.name.to_owned(), described(reference, of_group.key_docs[which]));
    }
    describe_all(keys, "", generator);
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

/// The value of a key that is accepted but has no effect. Editors strike the key through.
struct WithoutEffect<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for WithoutEffect<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = generator.subschema_for::<T>();
        schema.insert("deprecated".to_owned(), true.into());
        schema
    }
}

/// The JSON Schemas of tables, with their keys that are not settings.
macro_rules! schemas {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $settings:expr, $required:expr, [
            $($(#[doc = $key_doc:literal])+ $key:ident: $type:ty,)*
        ]
    )+) => {$(
        $(#[doc = $doc])+
        pub(super) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).trim_end_matches("Schema").into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let mut keys = Map::new();
                $(keys.insert(
                    stringify!($key).to_owned(),
                    described(generator.subschema_for::<$type>(), concat!($($key_doc),+).trim()),
                );)*
                let describe_settings: fn(&mut Map<String, Value>, &mut SchemaGenerator) = $settings;
                describe_settings(&mut keys, generator);
                let mut schema = object(concat!($($doc),+).trim(), keys);
                let required: &[&str] = &$required;
                if !required.is_empty() {
                    schema.insert("required".to_owned(), required.into());
                }
                schema
            }
        }
    )+};
}

schemas! {
    /// The listener for clients, and the clients that it accepts.
    ServerSchema: |keys, generator| describe::<Server>(keys, "", generator), [], []

    /// The admin listener, for operators.
    AdminSchema: |keys, generator| describe::<Admin>(keys, "", generator), [], []

    /// The other replicas of this proxy, behind the same balancer: any replica then serves any request. Without
    /// this table a replica is alone.
    FleetSchema: |keys, generator| describe::<FleetSettings>(keys, "", generator), ["key", "advertise"], []

    /// The folder for data that outlives the process: the usual durations of tools.
    StateSchema: |keys, generator| describe::<StateSettings>(keys, "", generator), [], []

    /// The server behind a route.
    UpstreamSchema: |keys, generator| {
        describe::<StdioUpstream>(keys, "", generator);
        describe::<HttpUpstream>(keys, "", generator);
    }, [], [
        /// The embedded legacy server.
        demo: bool,
        /// The command of a stdio server and its arguments.
        command: Vec<String>,
        /// The Streamable HTTP endpoint of a server.
        url: TextValue<Endpoint>,
        /// The HTTP+SSE endpoint of a server (2024-11-05).
        sse: TextValue<Endpoint>,
        /// Answers in the place of a server that knows only `tools/call` at `url`. Default: none.
        lifecycle: LifecycleSection,
        /// Has no effect any more: Milepost's own code speaks HTTP/1.1 to every server.
        engine: WithoutEffect<TextValue<OneOf<RetiredEngine>>>,
    ]

    /// Settings of one tool, over those of its route.
    ToolSchema: |keys, generator| describe_all_settings(keys, TableKind::Tool, generator), [], []

    /// Settings for all routes. Each key may also be set in a route, which takes precedence over this table.
    DefaultsSchema: |keys, generator| describe_all_settings(keys, TableKind::Route, generator), [], [
        /// Settings of single tools, by name.
        tools: BTreeMap<String, ToolSchema>,
    ]

    /// A server, its path for clients, and the treatment of its progress.
    RouteTableSchema: |keys, generator| describe_all_settings(keys, TableKind::Route, generator), ["path", "upstream"], [
        /// The path for clients, which is the name of the route. HTTP+SSE clients use PATH/sse.
        path: TextValue<RoutePath>,
        /// The URL of the route for clients behind a front that rewrites paths. Default: `public_url` of
        /// the server and the path.
        public_url: TextValue<PublicUrl>,
        /// The server behind the route: `demo`, `command`, or `url` and `sse`.
        upstream: UpstreamSchema,
        /// The name of a known server, whose settings apply unless the route has its own: `milepost presets` lists the
        /// names. With `wrap`: --preset. Default: none.
        preset: TextValue<OneOf<Preset>>,
        /// The route is only piped: Milepost neither reads nor changes its messages. Default: false.
        opaque: bool,
        /// Changes of headers. Hop-by-hop headers never pass.
        headers: HeadersSection,
        /// Settings of single tools, by name.
        tools: BTreeMap<String, ToolSchema>,
    ]
}
