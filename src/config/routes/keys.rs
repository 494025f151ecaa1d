//! Routes and the defaults of a route file as they are written: many keys stand in several tables.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::Route;
use super::ask::{RouteAsk, ToolAsk};
use super::file::{Headers, Upstream};
use crate::config::routes::compound_values::Patterns;
use crate::config::routes::values::{
    AnswerRepair, AnyScale, AnyTime, Count, OneOf, OriginOrAny, Period, RoutePath, Spelling, Text,
    TimeOrOff,
};
use crate::config::settings::{CallSettings, Settings};
use crate::progress::extract::Extract;
use crate::progress::policy::masks::Masks;
use crate::progress::{Coalesce, HeartbeatValue, Messages, Mode, OnFall, TokenIs};

/// What a key says, if it is there.
pub(super) fn said<S: Spelling<Value: Clone>>(key: &Option<Text<S>>) -> Option<S::Value> {
    key.as_ref().map(|text| text.0.clone())
}

fn put<T>(place: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *place = said;
    }
}

/// When silences of a call are broken (only calls of tools, only with a progress token).
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { enabled = false }")]
pub(super) struct Heartbeat {
    /// Whether they are broken at all. Default: true.
    enabled: Option<bool>,
    /// Silence before the first heartbeat. Default: "2s".
    after: Option<Text<AnyTime>>,
    /// Time between heartbeats; twice this once the server has said something for the call. Default:
    /// "5s".
    every: Option<Text<Period>>,
    /// Age of a call after which it gets none. Default: "30m".
    max: Option<Text<AnyTime>>,
    /// The figure of a heartbeat: the smallest step above the last one (lift), or the seconds of the
    /// call (elapsed). Default: "lift".
    value: Option<Text<OneOf<HeartbeatValue>>>,
}

impl Heartbeat {
    fn settings(&self) -> CallSettings {
        CallSettings {
            heartbeat: self.enabled,
            heartbeat_after: said(&self.after),
            heartbeat_every: said(&self.every),
            heartbeat_max: said(&self.max),
            heartbeat_value: said(&self.value),
            ..CallSettings::default()
        }
    }
}

/// CORS, answered in the place of the upstream.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { origins = [\"*\"] }")]
pub(super) struct Cors {
    /// The origins that may read answers; "*" stands for each that is admitted.
    pub(super) origins: Vec<Text<OriginOrAny>>,
}

/// A table with keys of its own and those that may differ from tool to tool.
///
/// serde cannot flatten one table into another that refuses unknown keys, so keys that several tables
/// have are written once, in a macro, and put into each.
macro_rules! with_tool_keys {
    ($(#[$attribute:meta])* struct $name:ident { $($own:tt)* }) => {
        #[derive(Default, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        $(#[$attribute])*
        pub(super) struct $name {
            $($own)*
            /// Which ways of saying "progress" are understood, by name; "defaults" stands for
            /// "standard", "tools-progress" and "tool-notifications". "log", "stderr" and "stdout" take
            /// log notifications, standard error, and lines on standard output that are no messages
            /// for progress of the one call that is active. Default: ["defaults"].
            #[schemars(with = "Option<Vec<String>>")]
            pub(super) dialects: Option<Vec<Spanned<String>>>,
            /// How figures are found in words: "{progress}/{total}", "{percent}%", or regular
            /// expressions with groups of these names; "presets" stands for those that are known.
            /// Default: ["presets"] in text of "log", "stderr" and "stdout", none in messages.
            extract: Option<Patterns<Extract>>,
            /// Regular expressions of what is not shown of such text, besides what looks like a
            /// secret; of a match the group "secret", if there is one. Default: none.
            mask: Option<Patterns<Masks>>,
            /// When silences of a call are broken.
            heartbeat: Heartbeat,
            /// What becomes of a figure that repeats or falls: it is set just above the last one
            /// (lift), begins a new phase on top of it (rebase), or is dropped. Default: "lift".
            on_fall: Option<Text<OneOf<OnFall>>>,
            /// What a figure without total counts: "percent", "unit" or a total. Default: nothing
            /// known.
            scale: Option<Text<AnyScale>>,
            /// How the messages of a call follow each other: each stands for itself (replace), or
            /// they are pieces of one text (append). Default: "replace".
            messages: Option<Text<OneOf<Messages>>>,
            /// Age at which a call is answered with an error and cancelled. Default: "off".
            call_timeout: Option<Text<TimeOrOff>>,
            /// Whether heartbeats of a silent call tell how much of its usual time has passed, once
            /// two calls of its tool are remembered: 0.3 of 1, "report: 12s of about 40s". Default:
            /// false.
            estimate: Option<bool>,
        }

        impl $name {
            fn call(&self) -> CallSettings {
                CallSettings {
                    ask: self.ask.settings(),
                    on_fall: said(&self.on_fall),
                    scale: said(&self.scale),
                    extract: self.extract.as_ref().map(|patterns| patterns.0.clone()),
                    masks: self.mask.as_ref().map(|patterns| patterns.0.clone()),
                    messages: said(&self.messages),
                    call_timeout: said(&self.call_timeout),
                    estimate: self.estimate,
                    ..self.heartbeat.settings()
                }
            }
        }
    };
}

with_tool_keys! {
    /// Settings of one tool, over those of its route.
    struct Tool {
        /// What is put into its calls, for servers that report nothing without it.
        ask: ToolAsk,
    }
}

/// A table with keys of its own and those that may stand in a route and in `[defaults]`.
macro_rules! with_route_keys {
    ($(#[$attribute:meta])* struct $name:ident { $($own:tt)* }) => {
        with_tool_keys! {
            $(#[$attribute])*
            struct $name {
                $($own)*
                /// How much is done: report only (observe), repair and withhold (enforce), or also
                /// break silences (full). Default: "full".
                mode: Option<Text<OneOf<Mode>>>,
                /// No progress before its call is this old. Default: "150ms" on stdio and HTTP+SSE, "0"
                /// on Streamable HTTP and for clients that are known not to need it.
                first_after: Option<Text<AnyTime>>,
                /// A notification waits this long and is dropped if the answer comes meanwhile. Default:
                /// "30ms", or "0" as above.
                hold: Option<Text<AnyTime>>,
                /// An answer is written no sooner than this after the last notification of its call.
                /// Default: "50ms", or "0" as above.
                guard: Option<Text<AnyTime>>,
                /// Thinned notifications of one call come no closer than this. Default: "100ms".
                min_interval: Option<Text<AnyTime>>,
                /// Which notifications are thinned: those that had to be repaired, or all. Default:
                /// "repaired".
                coalesce: Option<Text<OneOf<Coalesce>>>,
                /// Faults of answers that are left as they are: "response-id", "error-shape",
                /// "bare-result", "orphan-answer", "missing-id". Default: none.
                no_repair: Option<Vec<Text<AnswerRepair>>>,
                /// Whether a translated message is forwarded as well, for clients written for it.
                /// Default: false.
                keep_original: Option<bool>,
                /// What the server puts where the token belongs. Default: learned.
                token_is: Option<Text<OneOf<TokenIs>>>,
                /// Whether words of ours go into progress of 2024-11-05, which has no `message` yet.
                /// Default: false.
                words_in_2024: Option<bool>,
                /// What is put into requests, for servers that report nothing without it.
                ask: RouteAsk,
                /// How long connecting to the upstream may take. Default: "10s".
                connect_timeout: Option<Text<Period>>,
                /// Time without a byte of an upstream, progress included, after which its stream is given
                /// up. Default: "off".
                idle_timeout: Option<Text<TimeOrOff>>,
                /// Time without an answer after which a POST is answered with a stream of events.
                /// Default: "5s".
                upgrade_after: Option<Text<TimeOrOff>>,
                /// Methods besides tools/call whose POST may be answered so. Default: none.
                upgrade_methods: Option<Vec<String>>,
                /// Silence of a stream of events after which a comment is written to it. Default: "15s".
                keep_alive: Option<Text<TimeOrOff>>,
                /// Whether a GET stream is held for sessions whose client opens none. Default: false.
                own_get: Option<bool>,
                /// CORS, answered in the place of the upstream. Default: the upstream answers.
                cors: Option<Cors>,
                /// Bytes of a request's body; more is refused with 413. Default: 67108864.
                max_request_bytes: Option<Count<1>>,
                /// Streams that may be open at once; more are refused with 503. Default: 10000.
                max_streams: Option<Count<1>>,
                /// Sessions that are kept in mind; the one unused for longest is forgotten for a new
                /// one. Default: 10000.
                max_sessions: Option<Count<1>>,
                /// Settings of single tools, by name.
                tools: BTreeMap<String, Tool>,
            }
        }

        impl $name {
            /// How progress is treated; the dialects are looked up elsewhere.
            pub(super) fn settings(&self) -> Settings {
                let repairs = self.no_repair.iter().flatten();
                Settings {
                    mode: said(&self.mode),
                    first_after: said(&self.first_after),
                    hold: said(&self.hold),
                    guard: said(&self.guard),
                    min_interval: said(&self.min_interval),
                    coalesce: said(&self.coalesce),
                    no_repair: repairs.map(|name| name.0.clone()).collect(),
                    keep_original: self.keep_original,
                    token_is: said(&self.token_is),
                    words_in_2024: self.words_in_2024,
                    capabilities: self.ask.capabilities(),
                    log_level: self.ask.log_level(),
                    call: self.call(),
                    tools: self.tools.iter().map(|(name, tool)| (name.clone(), tool.call())).collect(),
                }
            }

            /// The names of dialects: the table's own, and those of single tools.
            pub(super) fn dialects(&self) -> impl Iterator<Item = (Option<&str>, &[Spanned<String>])> {
                let tools = self.tools.iter().map(|(name, tool)| (Some(&**name), &tool.dialects));
                let all = std::iter::once((None, &self.dialects)).chain(tools);
                all.filter_map(|(tool, names)| Some((tool, names.as_deref()?)))
            }

            /// Lays what is said about connections and limits over `route`.
            pub(super) fn merge_into(&self, route: &mut Route) {
                put(&mut route.connect_timeout, said(&self.connect_timeout));
                put(&mut route.idle_timeout, said(&self.idle_timeout));
                put(&mut route.upgrade_after, said(&self.upgrade_after));
                put(&mut route.upgrade_methods, self.upgrade_methods.clone());
                put(&mut route.keep_alive, said(&self.keep_alive));
                put(&mut route.own_get, self.own_get);
                if let Some(cors) = &self.cors {
                    let origins = cors.origins.iter().map(|origin| origin.0.clone()).collect();
                    route.cors = Some(super::Cors { origins });
                }
                put(&mut route.max_request_bytes, self.max_request_bytes.map(|count| count.0));
                put(&mut route.max_streams, self.max_streams.map(|count| count.0));
                put(&mut route.max_sessions, self.max_sessions.map(|count| count.0));
            }
        }
    };
}
with_route_keys! {
    /// What holds for every route unless it says otherwise.
    struct Defaults {}
}

with_route_keys! {
    /// A server, where clients find it and how its progress is treated.
    #[schemars(extend("required" = ["path", "upstream"]))]
    struct RouteTable {
        /// Where clients find it; its name. HTTP+SSE clients find it at PATH/sse.
        #[schemars(with = "Text<RoutePath>")]
        pub(super) path: Option<Spanned<Text<RoutePath>>>,
        /// What stands behind it: `demo`, `command`, or `url` and `sse`.
        #[schemars(with = "Upstream")]
        pub(super) upstream: Option<Spanned<Upstream>>,
        /// Whether it is only piped: nothing of it is read or changed. Default: false.
        #[schemars(with = "Option<bool>")]
        pub(super) opaque: Option<Spanned<bool>>,
        /// What is done to headers. Hop-by-hop headers never pass.
        pub(super) headers: Headers,
    }
}
