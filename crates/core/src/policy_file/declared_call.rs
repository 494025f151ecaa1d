//! Declares the settings that can differ from tool to tool. Each has a key, a description, a kind of values, the field
//! that it sets, a flag, and a default text if its default is not a value.
//!
//! To add a setting, add it to a policy with its default, declare it here, and write its row in `proxy.toml`;
//! everything else follows. A kind of values that has no word (`format.rs`) is not recorded.

use super::format::{DialectNames, List, NoRepair, Object, PatternList, Switch};
use super::setting::Flag;
use super::text::{
    AnyScale, AnyTime, ArgumentPointer, ByteSize, OneOf, Period, RepeatedTime, TimeOrOff,
};
use super::values::OFF;
use crate::progress::extract::Extract;
use crate::progress::policy::ask::TokenType;
use crate::progress::policy::masks::Masks;
use crate::progress::policy::tasks::TaskOffer;
use crate::progress::{
    CallPolicy, Coalesce, HeartbeatValue, Messages, Mode, OnFall, TokenIs, ValueFrom,
};
use crate::settings;

/// The groups of flags in `--help`, as indices into [`Flag::HEADINGS`].
pub(super) const FIRST: usize = 0;
const SILENCE: usize = 1;
const TIMING: usize = 2;
pub(super) const FIGURES: usize = 3;
const ANSWERS: usize = 4;
pub(super) const REQUESTS: usize = 5;

/// Applies a time that a settings source names to every client, also to clients that are known to need no pauses.
fn pace_every_client(policy: &mut CallPolicy) {
    policy.spare_known_clients = false;
}

settings! { #[cfg(feature = "schema")] CallPolicy, Self::default();
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
    /// no answer. With "auto" only the calls of clients that were seen to leave calls open and to repeat them count: from
    /// the age at which the client gives calls up, or from 5 s where that age is not known.
    "late.repeated_after" RepeatedTime => late.repeated_after {
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
    /// clients whose limit was learned, or is known and not a minute, are answered shortly before that limit.
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
