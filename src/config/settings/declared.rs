//! The declaration of each setting: its key, what it does, the kind of its values, the field that it
//! sets, its flag and its default where that is no value.
//!
//! To add a setting, add it to a policy with its default, declare it here, and write its row in
//! `proxy.toml`; all else follows. A kind of values without a word (`format.rs`) is not recorded.

use super::format::{
    DialectNames, List, Maybe, NoRepair, Object, PatternList, Strings, Switch, TypedTable,
};
use super::places::{CommandEnv, FilePath, StateFolder};
use super::{Flag, FormatField, Setting, SettingOptions, SettingScope};
use crate::config::routes::route::{
    Admin, Cors, HttpUpstream, Route, Server, ServerTls, StateSettings, StdioUpstream, Upstream,
};
use crate::config::values::OFF;
use crate::config::values::text::{
    Address, AnyScale, AnyTime, AtLeast, Hidden, HostText, LevelOrOff, OneOf, OriginText, Period,
    TimeOrOff,
};
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
                field: &FormatField::<Self, $format> {
                    key: $key,
                    get: |scope| &scope.$field $(.$part)*,
                    get_mut: |scope| &mut scope.$field $(.$part)*,
                },
            },)+];

            fn defaults() -> Self {
                $defaults
            }
        }
    };
}

settings! { Server, Self::default();
    /// The address clients connect to.
    "listen" Address => listen {}
    /// Host names that are answered, besides the listener's own and loopback's. An address beyond
    /// loopback needs at least one.
    "allowed_hosts" List<HostText> => allowed_hosts {}
    /// Origins of browsers that are answered, besides loopback's.
    "allowed_origins" List<OriginText> => allowed_origins {}
    /// Whether every host name is answered: any page that a user of this network opens can then
    /// reach the routes.
    "insecure" Switch => insecure {}
    /// The certificate and key of the listener.
    "tls" Maybe<TypedTable<ServerTls>> => tls { default: "none, it speaks plain HTTP" }
    /// What clients have to present as `Authorization: Bearer`.
    "bearer" Maybe<Hidden> => bearer { default: "nothing" }
    /// How long open calls may go on after SIGTERM.
    "drain" AnyTime => drain {}
    /// Client connections that may be open at once; more are refused with 503.
    "max_connections" AtLeast<1> => max_connections {}
    /// Bytes of a request's head; more is refused with 431.
    "max_header_bytes" AtLeast<8192> => max_header_bytes {}
}

settings! { Admin, Self::default();
    /// The address.
    "listen" Maybe<Address> => listen {}
    /// The token that operators present as `Authorization: Bearer` for all paths except /, /livez and /readyz.
    "bearer" Maybe<Hidden> => bearer {
        default: "no token, and all paths but those three answer over loopback only"
    }
}

settings! { StateSettings, Self::default();
    /// The folder, relative to this file, or "off".
    "dir" Maybe<StateFolder> => dir {
        default: "$XDG_STATE_HOME/milepost or ~/.local/state/milepost"
    }
}

settings! { StdioUpstream, Self::new(Vec::new());
    /// What the environment of the command has besides ours.
    "env" CommandEnv => env {}
    /// The folder that the command runs in, relative to this file.
    "cwd" Maybe<FilePath> => cwd { default: "that of milepost" }
    /// Whether clients of 2026-07-28, which have no sessions, share one child per `Authorization`;
    /// otherwise they are refused.
    "share" Switch => share {}
    /// Children that may run at once; more sessions are refused with 503.
    "max_children" AtLeast<1> => max_children {}
    /// How long after its start a child may take to answer its first request.
    "start_timeout" Period => start_timeout { default: "\"60s\"" }
    /// Time without use after which a session or a shared child is ended.
    "idle_timeout" TimeOrOff => idle_timeout {}
    /// Whether a shared child that has died is started again, after a pause that grows; otherwise
    /// its clients get errors.
    "restart" Switch => restart {}
    /// Bytes of the longest message of a shared child that is held in memory; a longer one goes to a
    /// temporary file.
    "max_frame" AtLeast<65536> => max_frame {}
    /// Bytes of the longest message of a shared child that goes to such a file; for a longer one its
    /// caller gets an error.
    "max_spill" AtLeast<0> => max_spill {}
}

settings! { HttpUpstream, Self::default();
    /// Whether the server is spoken to in HTTP/2 without TLS too; with TLS that is negotiated.
    "http2" Switch => http2 {}
    /// PEM file with certificate authorities that are trusted besides the system's.
    "ca_file" Maybe<FilePath> => ca_file {}
    /// What is presented to a server that asks for a certificate.
    "client_certificate" Maybe<TypedTable<ServerTls>> => client_certificate {}
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
    "cors" Maybe<TypedTable<Cors>> => cors { default: "the upstream answers" }
    /// Bytes of a request's body; more is refused with 413.
    "max_request_bytes" AtLeast<1> => max_request_bytes {}
    /// Streams that may be open at once; more are refused with 503.
    "max_streams" AtLeast<1> => max_streams {}
    /// Sessions that are kept in mind; the one unused for longest is forgotten for a new one.
    "max_sessions" AtLeast<1> => max_sessions {}
}

settings! { Policy, Self::default();
    /// Whether a translated message is forwarded as well, for clients written for it.
    "keep_original" Switch => keep_original {
        flag: Some(Flag::switch(FIGURES).help(
            "Forward a translated message as well, for clients written for it"
        ))
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

/// Whoever sets a time of pacing means it, whatever client comes.
fn pace_every_client(policy: &mut CallPolicy) {
    policy.spare_known_clients = false;
}

settings! { CallPolicy, Self::default();
    /// How much is done: report only (observe), repair and withhold (enforce), or also break silences
    /// (full).
    "mode" OneOf<Mode> => mode {
        flag: Some(Flag::new(FIRST, "MODE").help(
            "observe: report only; enforce: repair and withhold; full: also break silences"
        ))
    }
    /// Which ways of saying "progress" are understood, by name; "defaults" stands for "standard",
    /// "tools-progress" and "tool-notifications". "log", "stderr" and "stdout" take log notifications,
    /// standard error, and lines on standard output that are no messages for progress of the one call
    /// that is active.
    "dialects" DialectNames => dialects { default: "[\"defaults\"]" }
    /// How figures are found in words: "{progress}/{total}", "{percent}%", or regular expressions with
    /// groups of these names; "presets" stands for those that are known.
    "extract" Maybe<PatternList<Extract>> => extract {
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
    "mask" PatternList<Masks> => masks {
        flag: Some(Flag::new(FIGURES, "REGEX").repeats().help(
            "A regular expression of what is not shown of text of log, stderr and stdout, besides what \
             looks like a secret; repeat for more"
        )),
        is_recorded: false
    }
    /// No progress before its call is this old. Earlier progress waits, in its order, and is dropped if the answer
    /// comes first.
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
    /// What the server puts where the token belongs.
    "token_is" Maybe<OneOf<TokenIs>> => token_is {
        flag: Some(Flag::new(FIGURES, "WHAT").help(
            "What the server's progress names: the client's token, or the id of the request"
        )),
        default: "learned",
        flag_default: "learned"
    }
    /// Whether heartbeats break silences.
    "heartbeat.enabled" Switch => heartbeat.enabled {
        flag: Some(Flag {
            name: "no-heartbeat",
            switches_to: OFF,
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
    "ask.meta" Object<true> => ask.meta {
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
