//! Known names of members in servers' messages, in lower case without separators: `percentComplete` is
//! `percentcomplete`.

/// Returns a name in lower case without separators.
pub(super) fn plain(name: &str) -> String {
    name.chars().filter(|sign| sign.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Whether a member with this name may have the id or token of a call.
pub(super) fn is_handle(name: &str) -> bool {
    HANDLES.contains(&&*plain(name))
}

/// Whether a member with this name may have a progress value. Unknown names may, too.
pub(super) fn may_be_value(name: &str) -> bool {
    !measures_other(name) && !TOTALS.contains(&&*plain(name))
}

/// Whether a member with this name has numbers that are neither a progress value nor a total: ids, times, sequence
/// numbers.
pub(super) fn measures_other(name: &str) -> bool {
    let name = plain(name);
    let lists: [&[&str]; 2] = [&HANDLES, &NO_VALUES];
    lists.iter().any(|names| names.contains(&&*name))
        || TIMES.iter().any(|part| name.contains(part))
}

/// Names of members that identify a call. If the value of such a member is neither the id nor the token, the server has
/// invented it.
pub(super) const HANDLES: [&str; 17] = [
    "requestid",
    "callid",
    "toolcallid",
    "progresstoken",
    "token",
    "progressid",
    "id",
    "jobid",
    "taskid",
    "operationid",
    "opid",
    "runid",
    "invocationid",
    "executionid",
    "correlationid",
    "workid",
    "req",
];

/// Names of members that have a percentage.
pub(super) const PERCENTS: [&str; 8] = [
    "percent",
    "percentage",
    "percentcomplete",
    "pct",
    "progresspercent",
    "percentdone",
    "completionpercent",
    "progresspct",
];

/// Names of members that have a progress value, the most reliable first.
pub(super) const VALUES: [&str; 24] = [
    "progress",
    "fraction",
    "completion",
    "processed",
    "processedcount",
    "completed",
    "done",
    "current",
    "step",
    "iteration",
    "currentiteration",
    "currentstep",
    "finished",
    "complete",
    "position",
    "index",
    "count",
    "value",
    "ratio",
    "epoch",
    "item",
    "row",
    "at",
    "n",
];

/// Names of members that have the total of a value in the same object.
pub(super) const TOTALS: [&str; 18] = [
    "total",
    "totalcount",
    "max",
    "maximum",
    "steps",
    "totalsteps",
    "maxiterations",
    "of",
    "outof",
    "all",
    "size",
    "length",
    "expected",
    "target",
    "end",
    "goal",
    "items",
    "rows",
];

/// Names of members whose numbers are not progress.
pub(super) const NO_VALUES: [&str; 19] = [
    "time",
    "timestamp",
    "ts",
    "elapsed",
    "elapsedms",
    "duration",
    "durationms",
    "ms",
    "seconds",
    "seq",
    "sequence",
    "pid",
    "port",
    "version",
    "level",
    "eta",
    "remaining",
    "left",
    "code",
];

/// Parts of names of members that have a time: `elapsedSeconds`, `startTimestamp`.
const TIMES: [&str; 3] = ["elapsed", "timestamp", "duration"];

/// Names of members whose value, if it is a single word, is not text for people.
pub(super) const NO_WORDS: [&str; 11] = [
    "kind", "type", "event", "level", "severity", "logger", "source", "tool", "toolname", "unit",
    "color",
];

/// Names of members that have text for people, the most reliable first.
pub(super) const WORDS: [&str; 16] = [
    "message",
    "text",
    "msg",
    "words",
    "detail",
    "description",
    "note",
    "info",
    "label",
    "title",
    "status",
    "activity",
    "what",
    "phase",
    "stage",
    "state",
];

/// Names of members that mark the last message with the value `true`.
pub(super) const FINALS: [&str; 13] = [
    "isfinal",
    "final",
    "last",
    "islast",
    "done",
    "isdone",
    "finished",
    "isfinished",
    "complete",
    "iscomplete",
    "completed",
    "ended",
    "eof",
];

/// Names of members that have the state of the work.
pub(super) const STATES: [&str; 6] = ["state", "status", "phase", "kind", "event", "stage"];

/// Values of such a state that mean that the work is over.
pub(super) const OVER: [&str; 11] = [
    "done",
    "complete",
    "completed",
    "finished",
    "end",
    "ended",
    "success",
    "succeeded",
    "final",
    "failed",
    "error",
];
