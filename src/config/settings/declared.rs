//! The declaration of each setting: its key, what it does, the kind of its values, the field that it
//! sets, its flag and its default where that is no value.
//!
//! To add a setting, add it to a policy with its default, declare it here, and write its row in
//! `proxy.toml`; all else follows. A kind of values without a word (`format.rs`) is not recorded.

use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess};

use super::format::{
    CorsTable, DialectNames, Format, Maybe, Meta, NoRepair, Object, Strings, Switch,
};
use super::{Flag, Setting, SettingChange, SettingOptions, SettingScope};
use crate::config::routes::route::{Route, Upstream};
use crate::config::values::compound::Patterns;
use crate::config::values::text::{AnyScale, AnyTime, Count, LevelOrOff, OneOf, Period, TimeOrOff};
use crate::progress::extract::Extract;
use crate::progress::policy::ask::TokenType;
use crate::progress::policy::masks::Masks;
use crate::progress::{
    CallPolicy, Coalesce, HeartbeatValue, Messages, Mode, OnFall, Policy, TokenIs,
};

/// The parts of `--help`, by their place in [`Flag::HEADINGS`].
const FIRST: usize = 0;
const SILENCE: usize = 1;
const TIMING: usize = 2;
const FIGURES: usize = 3;
const ANSWERS: usize = 4;
const REQUESTS: usize = 5;

/// A value of one format, read where a table has it.
struct Seed<F>(PhantomData<F>);

impl<'de, F: Format> DeserializeSeed<'de> for Seed<F> {
    type Value = F::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<F::Value, D::Error> {
        F::deserialize(from)
    }
}

/// Settings of a scope: documentation, key and format, the field, and what few settings have.
macro_rules! settings {
    ($scope:ty, $defaults:expr; $(
        $(#[doc = $doc:literal])+
        $key:literal $format:ty => $field:ident $(.$part:ident)* { $($option:ident: $value:expr),* }
    )+) => {
        impl SettingScope for $scope {
            const SETTINGS: &'static [Setting<Self>] = &[$(Setting {
                key: $key,
                doc: concat!($($doc),+),
                options: SettingOptions { $($option: $value,)* ..SettingOptions::NONE },
                schema: |generator| <$format>::schema(generator),
                print: |scope, show| <$format>::print(&scope.$field $(.$part)*, show),
                read: |texts| {
                    let value = <$format as Format>::read(texts)?;
                    Ok(SettingChange::new($key, value, |scope: &mut $scope, value| {
                        <$format as Format>::put(&mut scope.$field $(.$part)*, value);
                    }))
                },
                choices: || <$format as Format>::choices(),
                words: || <$format>::words(),
                word: |scope, name| <$format as Format>::word(&scope.$field $(.$part)*, name),
                read_word: |scope, name, text| {
                    <$format as Format>::read_word(&mut scope.$field $(.$part)*, name, text)
                },
                debug: |scope| format!("{:?}", scope.$field $(.$part)*),
                examples: <$format as Format>::EXAMPLES,
            },)+];

            fn defaults() -> Self {
                $defaults
            }

            fn read<'de, A: MapAccess<'de>>(
                key: &str,
                table: &mut A,
            ) -> Result<Option<SettingChange<Self>>, A::Error> {
                match key {
                    $($key => {
                        let value = table.next_value_seed(Seed::<$format>(PhantomData))?;
                        Ok(Some(SettingChange::new($key, value, |scope: &mut $scope, value| {
                            <$format as Format>::put(&mut scope.$field $(.$part)*, value);
                        })))
                    })+
                    _ => Ok(None),
                }
            }
        }
    };
}

settings! { Route, Self::new("/".to_owned(), Upstream::Demo);
    /// How long connecting to the upstream may take.
    "connect_timeout" Period => connect_timeout {}
    /// Time without a byte of an upstream, progress included, after which its stream is given up.
    "idle_timeout" TimeOrOff => idle_timeout {}
    /// Time without an answer after which a POST is answered with a stream of events.
    "upgrade_after" TimeOrOff => upgrade_after {}
    /// Methods besides tools/call whose POST may be answered so.
    "upgrade_methods" Strings => upgrade_methods {}
    /// Silence of a stream of events after which a comment is written to it.
    "keep_alive" TimeOrOff => keep_alive {}
    /// Whether a GET stream is held for sessions whose client opens none.
    "own_get" Switch => own_get {}
    /// CORS, answered in the place of the upstream.
    "cors" CorsTable => cors { default: "the upstream answers" }
    /// Bytes of a request's body; more is refused with 413.
    "max_request_bytes" Count<1> => max_request_bytes {}
    /// Streams that may be open at once; more are refused with 503.
    "max_streams" Count<1> => max_streams {}
    /// Sessions that are kept in mind; the one unused for longest is forgotten for a new one.
    "max_sessions" Count<1> => max_sessions {}
}

/// Whoever sets a time of pacing means it, whatever client comes.
fn pace_every_client(policy: &mut Policy) {
    policy.spare_known_clients = false;
}

settings! { Policy, Self::default();
    /// How much is done: report only (observe), repair and withhold (enforce), or also break silences
    /// (full).
    "mode" OneOf<Mode> => mode {
        flag: Some(Flag::new(FIRST, "MODE").help(
            "observe: report only; enforce: repair and withhold; full: also break silences"
        ))
    }
    /// No progress before its call is this old.
    "first_after" AnyTime => pacing.first_after {
        flag: Some(Flag::new(TIMING, "TIME")),
        default: "\"150ms\" on stdio and HTTP+SSE, \"0\" on Streamable HTTP and for clients that are \
            known not to need it",
        flag_default: "150ms, 0 for the Python and Rust SDKs",
        also: pace_every_client
    }
    /// A notification waits this long and is dropped if the answer comes meanwhile.
    "hold" AnyTime => pacing.hold {
        flag: Some(Flag::new(TIMING, "TIME")),
        default: "\"30ms\", or \"0\" as above",
        flag_default: "30ms, 0 for the Python and Rust SDKs",
        also: pace_every_client
    }
    /// An answer is written no sooner than this after the last notification of its call.
    "guard" AnyTime => pacing.guard {
        flag: Some(Flag::new(TIMING, "TIME")),
        default: "\"50ms\", or \"0\" as above",
        flag_default: "50ms, 0 for the Python and Rust SDKs",
        also: pace_every_client
    }
    /// Thinned notifications of one call come no closer than this.
    "min_interval" AnyTime => min_interval { flag: Some(Flag::new(TIMING, "TIME")) }
    /// Which notifications are thinned: those that had to be repaired, or all.
    "coalesce" OneOf<Coalesce> => coalesce {
        flag: Some(Flag::new(TIMING, "WHICH").help(
            "Which notifications are thinned: repaired or all"
        ))
    }
    /// Faults of answers that are left as they are: "response-id", "error-shape", "bare-result",
    /// "orphan-answer", "missing-id".
    "no_repair" NoRepair => answers {
        flag: Some(Flag::new(ANSWERS, "NAME").repeats().help(
            "Leave this fault of answers as it is; repeat for more"
        ))
    }
    /// Whether a translated message is forwarded as well, for clients written for it.
    "keep_original" Switch => keep_original {
        flag: Some(Flag::switch(FIGURES).help(
            "Forward a translated message as well, for clients written for it"
        ))
    }
    /// What the server puts where the token belongs.
    "token_is" Maybe<OneOf<TokenIs>> => token_is {
        flag: Some(Flag::new(FIGURES, "WHAT").help(
            "What the server's progress names: the client's token, or the id of the request"
        )),
        default: "learned",
        flag_default: "learned"
    }
    /// Whether words of ours go into progress of 2024-11-05, which has no `message` yet.
    "words_in_2024" Switch => words_in_2024 {
        flag: Some(Flag::switch(FIGURES).help(
            "Also put words of Milepost's own into progress of 2024-11-05, which has no `message` yet"
        ))
    }
    /// Put into the client's capabilities; what the client says stands.
    "ask.capabilities" Object => capabilities {
        flag: Some(Flag::new(REQUESTS, "JSON").help(
            "Put these into the capabilities of the client, such as \
             '{\"experimental\": {\"progressNotifications\": {}}}'"
        )),
        is_recorded: false
    }
    /// The log messages that the server is asked for unless the client asks itself; never from
    /// 2026-07-28 on, where a client gets what it has asked for.
    "ask.log_level" LevelOrOff => log_level {
        flag: Some(Flag::new(REQUESTS, "LEVEL").help(
            "Ask the server for log messages of this level, or off, unless the client asks itself; not \
             from 2026-07-28 on"
        )),
        is_recorded: false
    }
}

settings! { CallPolicy, Self::default();
    /// Which ways of saying "progress" are understood, by name; "defaults" stands for "standard",
    /// "tools-progress" and "tool-notifications". "log", "stderr" and "stdout" take log notifications,
    /// standard error, and lines on standard output that are no messages for progress of the one call
    /// that is active.
    "dialects" DialectNames => dialects { default: "[\"defaults\"]" }
    /// How figures are found in words: "{progress}/{total}", "{percent}%", or regular expressions with
    /// groups of these names; "presets" stands for those that are known.
    "extract" Maybe<Patterns<Extract>> => extract {
        flag: Some(Flag::new(FIGURES, "PATTERN").repeats().help(
            "How figures are found in words: `{progress}/{total}`, `{percent}%`, a regular expression \
             with groups of these names, or `presets` for those that are known; repeat for more"
        )),
        default: "[\"presets\"] in text of \"log\", \"stderr\" and \"stdout\", none in messages",
        flag_default: "presets in text of log, stderr and stdout, none in messages",
        is_recorded: false
    }
    /// Regular expressions of what is not shown of such text, besides what looks like a secret; of a
    /// match the group "secret", if there is one.
    "mask" Patterns<Masks> => masks {
        flag: Some(Flag::new(FIGURES, "REGEX").repeats().help(
            "A regular expression of what is not shown of text of log, stderr and stdout, besides what \
             looks like a secret; repeat for more"
        )),
        is_recorded: false
    }
    /// Whether heartbeats break silences.
    "heartbeat.enabled" Switch => heartbeat.enabled {
        flag: Some(Flag {
            name: "no-heartbeat",
            switches_to: "false",
            ..Flag::switch(SILENCE).help("No heartbeats")
        })
    }
    /// Silence before the first heartbeat.
    "heartbeat.after" AnyTime => heartbeat.after {
        flag: Some(Flag::new(SILENCE, "TIME").help("Silence before the first heartbeat of a call"))
    }
    /// Time between heartbeats; twice this once the server has said something for the call.
    "heartbeat.every" Period => heartbeat.every { flag: Some(Flag::new(SILENCE, "TIME")) }
    /// Age of a call after which it gets no more heartbeats.
    "heartbeat.max" AnyTime => heartbeat.max {
        flag: Some(Flag::new(SILENCE, "TIME").help(
            "Age of a call after which it gets no more heartbeats, and the client's own time-out \
             applies again"
        ))
    }
    /// The figure of a heartbeat: the smallest step above the last one (lift), or the seconds of the
    /// call (elapsed).
    "heartbeat.value" OneOf<HeartbeatValue> => heartbeat.value {
        flag: Some(Flag::new(SILENCE, "VALUE").help(
            "lift: the smallest step above the last figure; elapsed: seconds since the call began"
        ))
    }
    /// What becomes of a figure that repeats or falls: it is set just above the last one (lift), begins
    /// a new phase on top of it (rebase), or is dropped.
    "on_fall" OneOf<OnFall> => on_fall {
        flag: Some(Flag::new(FIGURES, "RULE").help(
            "A figure that repeats or falls is set just above the last (lift), on top of it (rebase), \
             or withheld (drop)"
        ))
    }
    /// What a figure without total counts: "percent", "unit" or a total.
    "scale" Maybe<AnyScale> => scale {
        flag: Some(Flag::new(FIGURES, "SCALE").help(
            "What a figure without total counts: percent, unit (parts of 1), or a total such as 250"
        )),
        default: "nothing known"
    }
    /// How the messages of a call follow each other: each stands for itself (replace), or they are
    /// pieces of one text (append).
    "messages" OneOf<Messages> => messages {
        flag: Some(Flag::new(FIGURES, "HOW").help(
            "replace: each message stands for itself; append: they are pieces of one text"
        ))
    }
    /// Age at which a call is answered with an error and cancelled.
    "call_timeout" TimeOrOff => call_timeout {
        flag: Some(Flag::new(SILENCE, "TIME").help(
            "Answer a call with an error, and cancel it, when it is this old"
        ))
    }
    /// Whether heartbeats of a silent call tell how much of its usual time has passed, once two calls of
    /// its tool are remembered: 0.3 of 1, "report: 12s of about 40s".
    "estimate" Switch => estimate {
        flag: Some(Flag::switch(SILENCE).help(
            "Let heartbeats of a silent call tell how much of its usual time has passed, from the third \
             call of a tool on: 12s of about 40s"
        ))
    }
    /// Whether the token of a call is copied into its arguments, as a string under
    /// `_meta.progressToken`, for servers that look for it there.
    "ask.token_in_arguments" Switch => ask.token_in_arguments {
        flag: Some(Flag::switch(REQUESTS).help(
            "Copy the progress token of a tool call into its arguments, as a string under \
             `_meta.progressToken`, for servers that look for it there"
        )),
        is_recorded: false
    }
    /// The type of the tokens that the server is given, whatever the client's are.
    "ask.token_type" OneOf<TokenType> => ask.token_type {
        flag: Some(Flag::new(REQUESTS, "TYPE").help(
            "Give the server tokens of this type, whatever the client's are: string, integer or same"
        )),
        is_recorded: false
    }
    /// Put into `_meta` of tools/call; what the client says stands.
    "ask.meta" Meta => ask.meta {
        flag: Some(Flag::new(REQUESTS, "JSON").help(
            "Put these members into `_meta` of tool calls, such as '{\"stream\": true}'"
        )),
        is_recorded: false
    }
    /// Put into the arguments of tools/call; what the client says stands.
    "ask.arguments" Object => ask.arguments {
        flag: Some(Flag::new(REQUESTS, "JSON").help(
            "Put these arguments into tool calls, such as '{\"verbose\": true}'"
        )),
        is_recorded: false
    }
}
