//! Names of members in servers' messages, in small letters without separators: `percentComplete` is
//! `percentcomplete`.

/// A name in small letters without separators.
pub(super) fn plain(name: &str) -> String {
    name.chars().filter(|sign| sign.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Whether a member of this name may name a call.
pub(super) fn is_handle(name: &str) -> bool {
    HANDLES.contains(&&*plain(name))
}

/// Whether a member of this name may hold a value of progress, known or not.
pub(super) fn may_be_value(name: &str) -> bool {
    !measures_other(name) && !TOTALS.contains(&&*plain(name))
}

/// Whether the numbers of a member of this name are neither a value of progress nor a total: names of calls, times,
/// sequence numbers.
pub(super) fn measures_other(name: &str) -> bool {
    let name = plain(name);
    let lists: [&[&str]; 2] = [&HANDLES, &NO_VALUES];
    lists.iter().any(|names| names.contains(&&*name))
        || TIMES.iter().any(|part| name.contains(part))
}

/// Names of members that name a call. If the value of such a member is neither id nor token, it is a name that the
/// server has invented for the call.
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

/// Names of members that hold a percentage.
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

/// Names of members that hold a value of progress, the surest first.
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

/// Names of members that hold the total of a value beside them.
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

/// Parts of names of members that hold a time: `elapsedSeconds`, `startTimestamp`.
const TIMES: [&str; 3] = ["elapsed", "timestamp", "duration"];

/// Names of members whose single words are not for people.
pub(super) const NO_WORDS: [&str; 11] = [
    "kind", "type", "event", "level", "severity", "logger", "source", "tool", "toolname", "unit",
    "color",
];

/// Names of members that contain text for people, the surest first.
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

/// Names of members that mark a message as the last when they are `true`.
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

/// Names of members that hold a state.
pub(super) const STATES: [&str; 6] = ["state", "status", "phase", "kind", "event", "stage"];

/// States in which work is over.
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
