//! The declaration of each setting: its key, what it does, the kind of its values, the field that it
//! sets, its flag and its default where that is no value.
//!
//! To add a setting, add it to a policy with its default, declare it here, and write its row in
//! `proxy.toml`; all else follows. A kind of values without a word (`format.rs`) is not recorded.

use super::format::{
    DialectNames, List, Maybe, NoRepair, Object, PatternList, Strings, Switch, TypedTable,
};
use super::places::{CommandEnv, FilePath, Inherited, StateFolder};
use super::{Flag, FormatField, Setting, SettingOptions, SettingScope};
use crate::config::routes::FrontHeader;
use crate::config::routes::route::{
    Admin, Cors, ForwardedRule, Route, Server, ServerTls, StateSettings, StdioUpstream, Upstream,
};
use crate::config::values::OFF;
use crate::config::values::principal_header::PrincipalHeader;
use crate::config::values::text::{
    Address, AnyScale, AnyTime, ArgumentPointer, AtLeast, ByteSize, Hidden, HostText, NetText,
    OneOf, OriginText, Period, PublicUrl, TimeOrOff,
};
use crate::progress::extract::Extract;
use crate::progress::policy::ask::TokenType;
use crate::progress::policy::masks::Masks;
use crate::progress::policy::tasks::TaskOffer;
use crate::progress::{
    CallPolicy, Coalesce, HeartbeatValue, Messages, Mode, OnFall, TokenIs, ValueFrom,
};

/// The parts of `--help`, by their place in [`Flag::HEADINGS`].
pub(super) const FIRST: usize = 0;
const SILENCE: usize = 1;
const TIMING: usize = 2;
pub(super) const FIGURES: usize = 3;
const ANSWERS: usize = 4;
pub(super) const REQUESTS: usize = 5;

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

pub(super) use settings;

settings! { Server, Self::default();
    /// The address that clients connect to.
    "listen" Address => listen {}
    /// Accepted host names besides those of the listener and of loopback. An address that other machines
    /// can reach needs at least one.
    "allowed_hosts" List<HostText> => allowed_hosts {}
    /// Accepted origins of browsers besides those of loopback.
    "allowed_origins" List<OriginText> => allowed_origins {}
    /// Addresses and nets (CIDR) of fronts, such as "10.0.0.0/8". What they say of their clients is believed
    /// (forwarded), and they are no clients themselves.
    "trusted_proxies" List<NetText> => trusted_proxies {}
    /// The header in which trusted_proxies name their clients. With x-forwarded-for or forwarded the other is left out.
    "front_header" OneOf<FrontHeader> => front_header {}
    /// The header in which trusted_proxies name the user for whom they ask, such as "header:x-user". The user is
    /// then the client of limits, sessions and shared children. From others the header is left out.
    "principal" Maybe<PrincipalHeader> => principal { default: "none" }
    /// Refuses requests of pages of other sites that have no accepted origin, and POSTs of pages whose
    /// body has a type that a form can send. Browsers mark such requests with `Sec-Fetch-Site`.
    "check_pages" Switch => check_pages {}
    /// Accepts every host name: any web page that a user of this network opens can then reach the routes.
    "insecure" Switch => insecure {}
    /// The URL of the listener for clients behind a front that rewrites paths. The path of each route
    /// follows this URL. The `endpoint` of HTTP+SSE and the metadata of a sign-in then name it.
    "public_url" Maybe<PublicUrl> => public_url { default: "the address that the client uses" }
    /// The certificate and key of the listener.
    "tls" Maybe<TypedTable<ServerTls>> => tls { default: "none, it speaks plain HTTP" }
    /// PEM file with certificate authorities: each client must present a certificate of theirs. Needs `tls`.
    /// The name in the certificate (its first URI, else its first DNS name, else its common name) says who
    /// the client is: clients of one name share a child, others do not.
    "client_ca_file" Maybe<FilePath> => client_ca_file { default: "none, clients present no certificate" }
    /// The token that clients present as `Authorization: Bearer`.
    "bearer" Maybe<Hidden> => bearer { default: "nothing" }
    /// The time after SIGTERM in which readiness says no, and everything is still served, so that load
    /// balancers send new requests elsewhere before the listener closes. With `[fleet]` a client that begins a
    /// session then gets 503 with Retry-After. SIGINT or a second signal skips this time.
    "linger" AnyTime => linger {}
    /// The time that open calls have to end after SIGTERM and `linger`.
    "drain" AnyTime => drain {}
    /// The largest number of open client connections; a further connection gets 503. At most three quarters
    /// of the descriptors that the system allows; the rest is for children, servers and operators.
    "max_connections" AtLeast<1> => max_connections {}
    /// The time without a request after which an HTTP/1.1 connection closes. Load balancers should close theirs first.
    "http1_idle_timeout" TimeOrOff => http1_idle_timeout {}
    /// The time without an open stream after which an HTTP/2 connection of a client is closed.
    "http2_idle_timeout" TimeOrOff => http2_idle_timeout {}
    /// The largest number of open connections of one address (of 64 bits of it for IPv6); a further connection
    /// gets 429. 0 is any number. Loopback and trusted_proxies are not limited.
    "max_client_connections" AtLeast<0> => clients.connections {}
    /// The largest number of open streams of one client: the name in its certificate or of `principal`, else its
    /// address, or the address that one of trusted_proxies names. The streams of one `Authorization` have the
    /// same limit, also over loopback. A further stream gets 429. 0 is any number.
    "max_client_streams" AtLeast<0> => clients.streams {}
    /// The largest number of sessions that Milepost keeps for one client, on routes to servers of another
    /// transport; a further session gets 429. 0 is any number.
    "max_client_sessions" AtLeast<0> => clients.sessions {}
    /// The largest number of children that run for one client; a further child gets 429. A shared child counts
    /// for the client whose request started it. 0 is any number.
    "max_client_children" AtLeast<0> => clients.children {}
    /// The largest number of children that start for one client in a minute. A further start gets 429 for a
    /// second, then for two, up to a minute where the client goes on. 0 is any number.
    "max_client_child_starts" AtLeast<0> => clients.child_starts {}
    /// Raises the soft limit of descriptors of `serve` to the hard one at the start, on Linux. Children keep
    /// the soft limit of before.
    "raise_descriptors" Switch => raise_descriptors {}
    /// The largest head of a request, in bytes; a longer head gets 431.
    "max_header_bytes" AtLeast<8192> => max_header_bytes {}
    /// The largest number of bytes that bodies of requests hold together, in memory and in files, before they are
    /// whole; a request for which there is no room gets 503.
    "max_unread_bytes" AtLeast<65536> => max_unread_bytes {}
    /// The largest number of bytes that large answers of shared children and of HTTP+SSE servers hold together in
    /// temporary files; for an answer for which there is no room its caller gets an error.
    "max_spilled_bytes" AtLeast<1048576> => max_spilled_bytes {}
    /// The largest number of bytes that messages hold together in memory while they wait: bodies of requests for their
    /// servers, answers of late calls and of tasks for their clients, and messages that streams of sessions keep for
    /// clients that come back, whether taken or not. One client has at most a quarter. A request for which there is no
    /// room gets 503, or 429 where its own client holds too much; an answer for which there is none is sent to a client
    /// that is there, and not kept.
    "max_kept_bytes" AtLeast<1048576> => max_kept_bytes {}
}

settings! { Admin, Self::default();
    /// The address.
    "listen" Maybe<Address> => listen {}
    /// The token that operators present as `Authorization: Bearer` for all paths except /, /livez and /readyz.
    "bearer" Maybe<Hidden> => bearer {
        default: "the token that Milepost makes; /metrics then needs no token, and answers over loopback only"
    }
    /// Makes a token at the start where there is no `bearer`: the file `admin-token` in the folder of
    /// `[state]`, which only this user can read. /calls, /tap and /log-level need the token; `milepost tap`
    /// finds the file itself. With false, or where no file can be made, these paths answer over loopback
    /// to every user of the machine.
    "make_token" Switch => make_token {}
}

mod fleet;
mod http_upstream;

settings! { StateSettings, Self::default();
    /// The folder, relative to this file, or "off".
    "dir" Maybe<StateFolder> => dir {
        default: "$XDG_STATE_HOME/milepost or ~/.local/state/milepost"
    }
}

settings! { StdioUpstream, Self::new(Vec::new());
    /// Additional variables of the command's environment.
    "env" CommandEnv => env {}
    /// The variables of Milepost's environment that the command inherits under `serve`: "all", except for
    /// `NOTIFY_SOCKET` and those that this file uses in `bearer`, `key` and `headers` or in `env` of another
    /// route; "safe", which are HOME, LANG, LC_*, LOGNAME, PATH, SHELL, SSL_CERT_*, TERM, TMPDIR, TZ, USER,
    /// XDG_* and *_PROXY; or a list of names. With `wrap` the command inherits all.
    "inherit_env" Inherited => inherit_env {}
    /// The working folder of the command, relative to this file.
    "cwd" Maybe<FilePath> => cwd { default: "that of milepost" }
    /// Clients of 2026-07-28, which have no sessions, share one child per `Authorization`; otherwise they
    /// are refused.
    "share" Switch => share {}
    /// The largest number of running children; a further session gets 503.
    "max_children" AtLeast<1> => max_children {}
    /// The open calls on a shared child that its clients divide: each client with open calls has the same share,
    /// and a further call of it gets 429. Clients are those of max_client_streams. 0 is any number.
    "max_shared_calls" AtLeast<0> => max_shared_calls {}
    /// The longest time from the start of a child to its first answer.
    "start_timeout" Period => start_timeout { default: "\"60s\"" }
    /// The time without use after which a session or a shared child ends.
    "idle_timeout" TimeOrOff => idle_timeout {}
    /// The time after which a session ends whose client held a GET stream that has closed, and has sent no request
    /// since. An open call, a task, and an answer that is kept for the client keep the session for idle_timeout.
    "abandoned_timeout" TimeOrOff => abandoned_timeout {}
    /// A dead shared child is started again, after a growing pause; otherwise its clients get errors.
    "restart" Switch => restart {}
    /// The longest message of a shared child that is held in memory, in bytes; a longer message goes to a
    /// temporary file.
    "max_frame" AtLeast<65536> => max_frame {}
    /// The longest message of a shared child that goes to such a file, in bytes; for a longer message its
    /// caller gets an error.
    "max_spill" AtLeast<0> => max_spill {}
}

settings! { Route, Self::new("/".to_owned(), Upstream::Demo);
    /// The longest time of connecting to the upstream.
    "connect_timeout" Period => connect_timeout {}
    /// The longest time of the upstream for a request of Milepost's own: to begin the stream of own_get, to
    /// begin a lost session again, and to answer at a URL of lifecycle.
    "own_request_timeout" Period => own_request_timeout {}
    /// The longest silence of an upstream, without a byte, before its stream is given up.
    "idle_timeout" TimeOrOff => idle_timeout {}
    /// The time without use after which a session of Milepost's own, between the two HTTP transports, ends. An
    /// open call and a client that listens are use. (Sessions of a command: upstream.idle_timeout.) A stream of
    /// own_get ends too, until the client's next message.
    "session_idle_timeout" TimeOrOff => session_idle_timeout {}
    /// The time without an answer after which a POST gets a stream of events.
    "upgrade_after" TimeOrOff => upgrade_after {}
    /// Methods besides tools/call whose POST may get such a stream.
    "upgrade_methods" Strings => upgrade_methods {}
    /// The silence of a stream of events after which a comment is written to the stream.
    "keep_alive" TimeOrOff => keep_alive {}
    /// Milepost holds a GET stream to the server for sessions whose client opens none.
    "own_get" Switch => own_get {}
    /// CORS, answered in the place of the upstream.
    "cors" Maybe<TypedTable<Cors>> => cors { default: "the upstream answers" }
    /// The headers X-Forwarded-* and Forwarded of requests: pass (unchanged), drop, or append (the client's
    /// address, host and protocol are added; what others than trusted_proxies say is left out).
    "forwarded" OneOf<ForwardedRule> => forwarded {}
    /// The longest body of a request, in bytes; a longer body gets 413.
    "max_request_bytes" AtLeast<1> => max_request_bytes {}
    /// The longest time that clients take to send the body of a request; time in which the upstream does not
    /// read does not count. A slower client gets 408.
    "body_timeout" TimeOrOff => body_timeout {}
    /// The bytes a second that a client has to send of such a body, on average, from the tenth second on; 0 is
    /// any number. A slower client gets 408.
    "body_min_rate" AtLeast<0> => body_min_rate {}
    /// The largest number of open streams; a further stream gets 503. Where a session of Milepost's own is
    /// between, a call counts until it is answered, also if its client has left.
    "max_streams" AtLeast<1> => max_streams {}
    /// The largest number of known sessions. A new session of a server of Streamable HTTP replaces the one
    /// unused for longest. Where the session is Milepost's, between the two HTTP transports, a further one gets 503.
    "max_sessions" AtLeast<1> => max_sessions {}
}

/// A time that a source names holds for every client.
fn pace_every_client(policy: &mut CallPolicy) {
    policy.spare_known_clients = false;
}

settings! { CallPolicy, Self::default();
    /// The extent of Milepost's work: report only (observe), repair and withhold (enforce), or also send
    /// heartbeats (full).
    "mode" OneOf<Mode> => mode {
        flag: Some(Flag::new(FIRST, "MODE").help(
            "observe: report only; enforce: repair and withhold; full: also break silences"
        ))
    }
    /// The dialects that are read as progress, by name; "defaults" stands for "standard", "tools-progress",
    /// "tool-notifications" and "overheard". "log", "stderr" and "stdout" read log notifications, standard error, and
    /// lines on standard output that are not messages as progress of the only active call.
    "dialects" DialectNames => dialects { default: "[\"defaults\"]" }
    /// Patterns that find values in words, where no number stands beside them: "{progress}/{total}",
    /// "{percent}%", or regular expressions with groups of these names; "presets" stands for the forms of
    /// many tools. They are tried on messages of progress without a number, and on text of "log", "stderr"
    /// and "stdout". A number that the server declares counts before words. [] is off.
    "extract" PatternList<Extract> => extract {
        flag: Some(Flag::new(FIGURES, "PATTERN").repeats().help(
            "How figures are found in words: `{progress}/{total}`, `{percent}%`, a regular expression \
             with groups of these names, `presets` for those that are known, or off; repeat for more"
        )),
        is_recorded: false
    }
    /// Regular expressions for parts of such text that are masked, besides text that looks like a secret.
    /// Of a match the group "secret" is masked, if there is one.
    "mask" PatternList<Masks> => masks {
        flag: Some(Flag::new(FIGURES, "REGEX").repeats().help(
            "A regular expression of what is not shown of text of log, stderr and stdout, besides what \
             looks like a secret; repeat for more"
        )),
        is_recorded: false
    }
    /// The age of a call before its first progress. Earlier progress waits in its order, and is dropped
    /// if the answer comes first.
    "first_after" AnyTime => pacing.first_after {
        flag: Some(Flag::new(TIMING, "TIME")),
        default: "\"150ms\" on stdio and HTTP+SSE, \"0\" on Streamable HTTP and for clients that are \
            known not to need it",
        flag_default: "150ms, 0 for the Python and Rust SDKs",
        also: pace_every_client
    }
    /// The time that a notification waits; if the answer comes meanwhile, the notification is dropped.
    "hold" AnyTime => pacing.hold {
        flag: Some(Flag::new(TIMING, "TIME")),
        default: "\"30ms\", or \"0\" as above",
        flag_default: "30ms, 0 for the Python and Rust SDKs",
        also: pace_every_client
    }
    /// The shortest time between the last notification of a call and its answer.
    "guard" AnyTime => pacing.guard {
        flag: Some(Flag::new(TIMING, "TIME")),
        default: "\"50ms\", or \"0\" as above",
        flag_default: "50ms, 0 for the Python and Rust SDKs",
        also: pace_every_client
    }
    /// The shortest time between two thinned notifications of one call.
    "min_interval" AnyTime => min_interval { flag: Some(Flag::new(TIMING, "TIME")) }
    /// The notifications that are thinned: only those that had to be repaired, or all.
    "coalesce" OneOf<Coalesce> => coalesce {
        flag: Some(Flag::new(TIMING, "WHICH").help(
            "Which notifications are thinned: repaired or all"
        ))
    }
    /// Faults that are not repaired: "response-id", "error-shape", "bare-result", "ping", "orphan-answer" and
    /// "missing-id" of answers, "event-name" and "noise" of events, "envelope", "unicode" and "split-line" of all
    /// messages, and "total" of progress that is compliant otherwise.
    "no_repair" NoRepair => answers {
        flag: Some(Flag::new(ANSWERS, "NAME").repeats().help(
            "Leave this fault of answers, events, text or totals as it is; repeat for more"
        ))
    }
    /// The value that the server puts in the place of the token: the client's token (token), or the id of the
    /// request (request_id). With "learned" Milepost learns the value from the server's messages.
    "token_is" OneOf<Option<TokenIs>> => token_is {
        flag: Some(Flag::new(FIGURES, "WHAT").help(
            "What the server's progress names: the client's token, or the id of the request"
        ))
    }
    /// Heartbeats break the silences of a call.
    "heartbeat.enabled" Switch => heartbeat.enabled {
        flag: Some(Flag {
            name: "no-heartbeat",
            switches_to: OFF,
            ..Flag::switch(SILENCE).help("No heartbeats")
        })
    }
    /// The silence before the first heartbeat.
    "heartbeat.after" AnyTime => heartbeat.after {
        flag: Some(Flag::new(SILENCE, "TIME").help("Silence before the first heartbeat of a call"))
    }
    /// The time between heartbeats; twice this time once the server has sent a message for the call.
    "heartbeat.every" Period => heartbeat.every { flag: Some(Flag::new(SILENCE, "TIME")) }
    /// The age of a call after which it gets no more heartbeats.
    "heartbeat.max" AnyTime => heartbeat.max {
        flag: Some(Flag::new(SILENCE, "TIME").help(
            "Age of a call after which it gets no more heartbeats, and the client's own time-out \
             applies again"
        ))
    }
    /// The value of a heartbeat: the smallest step above the last value (lift), or the seconds of the call
    /// (elapsed).
    "heartbeat.value" OneOf<HeartbeatValue> => heartbeat.value {
        flag: Some(Flag::new(SILENCE, "VALUE").help(
            "lift: the smallest step above the last figure; elapsed: seconds since the call began"
        ))
    }
    /// The treatment of a value that repeats or falls: lift it just above the last value, rebase it (a new
    /// phase on top of the last value), or drop it.
    "on_fall" OneOf<OnFall> => on_fall {
        flag: Some(Flag::new(FIGURES, "RULE").help(
            "A figure that repeats or falls is set just above the last (lift), on top of it (rebase), \
             or withheld (drop)"
        ))
    }
    /// The scale of a value without a total: "percent", "unit" or a total. With "raw" the scale is unknown.
    "scale" AnyScale => scale {
        flag: Some(Flag::new(FIGURES, "SCALE").help(
            "What a figure without total counts: percent, unit (parts of 1), a total such as 250, or raw \
             (unknown)"
        ))
    }
    /// The value of a report: the number that the server declares (progress), or the value and total in the words
    /// where that number has no total (words), for servers that count without a total and say "Step 2 of 4".
    "value_from" OneOf<ValueFrom> => value_from {
        flag: Some(Flag::new(FIGURES, "WHERE").help(
            "Take the figure that the server declares (progress), or that in the words where the declared \
             one has no total (words)"
        ))
    }
    /// The relation of the messages of a call: each message stands for itself (replace), or the messages
    /// are pieces of one text (append).
    "messages" OneOf<Messages> => messages {
        flag: Some(Flag::new(FIGURES, "HOW").help(
            "replace: each message stands for itself; append: they are pieces of one text"
        ))
    }
    /// The age at which a call gets an error and the server a cancellation.
    "call_timeout" TimeOrOff => call_timeout {
        flag: Some(Flag::new(SILENCE, "TIME").help(
            "Answer a call with an error, and cancel it, when it is this old"
        ))
    }
    /// Heartbeats show the elapsed part of the usual time of a silent tool, once two calls of the tool are
    /// remembered: 0.3 of 1, "report: 12s of about 40s".
    "estimate" Switch => estimate {
        flag: Some(Flag::switch(SILENCE).help(
            "Let heartbeats of a silent call tell how much of its usual time has passed, from the third \
             call of a tool on: 12s of about 40s"
        ))
    }
    /// The work of a call goes on after its client gave the call up by the client's clock, and the same call of the
    /// same client joins the work or gets its answer. Not over HTTP+SSE on both sides.
    "late.enabled" Switch => late.enabled {
        flag: Some(Flag::switch(SILENCE).help(
            "Let a call that its client gives up by its clock go on; the same call joins the work, or gets \
             its answer"
        ))
    }
    /// The longest time that the work goes on while no client waits for it. Then the server is told to cancel
    /// it.
    "late.keep" Period => late.keep { flag: Some(Flag::new(SILENCE, "TIME")) }
    /// The longest time that an answer waits for its client.
    "late.finished" Period => late.finished { flag: Some(Flag::new(SILENCE, "TIME")) }
    /// The largest number of bytes of answers that wait, of all calls to one server; an answer without room is
    /// dropped.
    "late.bytes" ByteSize => late.bytes { flag: Some(Flag::new(SILENCE, "SIZE")) }
    /// Members of the arguments that may differ between two calls for the same work, as JSON Pointers.
    "late.ignore" List<ArgumentPointer> => late.ignore {
        flag: Some(Flag::new(SILENCE, "POINTER").repeats().help(
            "A member of the arguments that may differ between two calls for the same work, such as \
             /request_id; repeat for more"
        ))
    }
    /// The work of tools with `destructiveHint` goes on too: a second call of such a tool does not repeat it.
    "late.destructive" Switch => late.destructive { flag: Some(Flag::switch(SILENCE)) }
    /// The age of an open call from which the same call of the same client counts as its repetition, for clients
    /// that give calls up without a cancellation (Codex, version 1 of the Python SDK). The first call then gets
    /// no answer.
    "late.repeated_after" TimeOrOff => late.repeated_after {
        flag: Some(Flag::new(SILENCE, "TIME").help(
            "Let the same call join an open call that is this old: its client has given it up without a word"
        ))
    }
    /// A call that is `late.before` old is answered with words for a model: the work goes on, and the same call
    /// waits for it.
    "late.tell" Switch => late.tell {
        flag: Some(Flag::switch(SILENCE).help(
            "Answer a call with words for the model, to call again and go on waiting, before its client \
             gives it up"
        ))
    }
    /// The age of a call at which `late.tell` answers: a little less than the limit of the client. With the default,
    /// clients with another known limit than a minute are answered shortly before that limit.
    "late.before" Period => late.before { flag: Some(Flag::new(SILENCE, "TIME")) }
    /// Clients of 2025-11-25 may run calls of tools as tasks, where the server has no tasks. Not over HTTP+SSE on both
    /// sides.
    "tasks.enabled" Switch => tasks.enabled {
        flag: Some(Flag::switch(SILENCE).help(
            "Let clients of 2025-11-25 run slow calls of a server without tasks as tasks"
        ))
    }
    /// The tools that are offered as tasks: those whose calls usually take `tasks.after` (slow), all (always), or
    /// none (never).
    "tasks.offer" OneOf<TaskOffer> => tasks.offer { flag: Some(Flag::new(SILENCE, "WHICH")) }
    /// The usual duration of calls from which a tool counts as slow.
    "tasks.after" AnyTime => tasks.after { flag: Some(Flag::new(SILENCE, "TIME")) }
    /// The longest time to live of a task, from its beginning. Then the task is forgotten, and the server is told to
    /// cancel a call that still runs.
    "tasks.ttl" Period => tasks.ttl { flag: Some(Flag::new(SILENCE, "TIME")) }
    /// The largest number of bytes of answers that wait for their clients, of all tasks of one connection; a task
    /// whose answer has no room fails.
    "tasks.bytes" ByteSize => tasks.bytes { flag: Some(Flag::new(SILENCE, "SIZE")) }
    /// The token of a call is copied into the call's arguments, as a string under `_meta.progressToken`,
    /// for servers that look for the token there.
    "ask.token_in_arguments" Switch => ask.token_in_arguments {
        flag: Some(Flag::switch(REQUESTS).help(
            "Copy the progress token of a tool call into its arguments, as a string under \
             `_meta.progressToken`, for servers that look for it there"
        )),
        is_recorded: false
    }
    /// The type of the tokens that the server gets. With "none" the server gets no token, and no `_meta` that holds
    /// nothing else; the client gets heartbeats all the same.
    "ask.token_type" OneOf<TokenType> => ask.token_type {
        flag: Some(Flag::new(REQUESTS, "TYPE").help(
            "Give the server tokens of this type, whatever the client's are: string, integer, none or same"
        )), is_recorded: false
    }
    /// Additions to `_meta` of tools/call. A member that the client has set stays.
    "ask.meta" Object<true> => ask.meta {
        flag: Some(Flag::new(REQUESTS, "JSON").help(
            "Put these members into `_meta` of tool calls, such as '{\"stream\": true}'"
        )),
        is_recorded: false
    }
    /// Additions to the arguments of tools/call. A member that the client has set stays.
    "ask.arguments" Object => ask.arguments {
        flag: Some(Flag::new(REQUESTS, "JSON").help(
            "Put these arguments into tool calls, such as '{\"verbose\": true}'"
        )),
        is_recorded: false
    }
}
