//! The tables of settings within a table of settings, such as `heartbeat`.

/// Tables of settings within a table.
pub(super) const GROUPS: [KeyGroup; 4] = [
    KeyGroup { name: "heartbeat", expected: "a table such as { enabled = false }", switch: None },
    KeyGroup {
        name: "late",
        expected: "a table such as { keep = \"30m\" }",
        switch: Some("late.enabled"),
    },
    KeyGroup {
        name: "tasks",
        expected: "a table such as { ttl = \"1h\" }",
        switch: Some("tasks.enabled"),
    },
    KeyGroup { name: "ask", expected: "a table such as { token_type = \"string\" }", switch: None },
];

pub(super) struct KeyGroup {
    pub(super) name: &'static str,
    pub(super) expected: &'static str,
    /// The setting that the table switches on by being there.
    pub(super) switch: Option<&'static str>,
}
