//! The tables of settings within a table of settings, such as `heartbeat`.

/// Tables of settings within a table. Lists of two are for a route and for a tool.
pub(super) const GROUPS: [KeyGroup; 4] = [
    KeyGroup {
        name: "heartbeat",
        types: ["Heartbeat", "Heartbeat"],
        key_docs: ["Heartbeats, which break the silences of a call."; 2],
        docs: ["Heartbeats, which break the silences of tool calls with a progress token."; 2],
        expected: "a table such as { enabled = false }",
        switch: None,
    },
    KeyGroup {
        name: "late",
        types: ["Late", "Late"],
        key_docs: ["Late answers: the work of a call goes on after its client gave the call up.";
            2],
        docs: ["Late answers to calls that clients give up by their clocks. The table switches them on.";
            2],
        expected: "a table such as { keep = \"30m\" }",
        switch: Some("late.enabled"),
    },
    KeyGroup {
        name: "tasks",
        types: ["TaskSettings", "TaskSettings"],
        key_docs: ["Tasks: clients of 2025-11-25 may run calls of tools as tasks."; 2],
        docs: ["Calls that clients run as tasks, where the server has no tasks. The table switches them on.";
            2],
        expected: "a table such as { ttl = \"1h\" }",
        switch: Some("tasks.enabled"),
    },
    KeyGroup {
        name: "ask",
        types: ["RouteAsk", "ToolAsk"],
        key_docs: [
            "Additions to requests, for servers that report nothing unless they are asked.",
            "Additions to calls, for servers that report nothing unless they are asked.",
        ],
        docs: ["Additions to the requests of clients.", "Additions to the calls of one tool."],
        expected: "a table such as { token_type = \"string\" }",
        switch: None,
    },
];

pub(super) struct KeyGroup {
    pub(super) name: &'static str,
    pub(super) types: [&'static str; 2],
    pub(super) key_docs: [&'static str; 2],
    pub(super) docs: [&'static str; 2],
    pub(super) expected: &'static str,
    /// The setting that the table switches on by being there.
    pub(super) switch: Option<&'static str>,
}
