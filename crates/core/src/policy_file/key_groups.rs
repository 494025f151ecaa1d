//! The tables of settings within a table of settings, such as `heartbeat`.

/// All tables of settings within a settings table.
pub const GROUPS: [KeyGroup; 4] = [
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

/// A table of settings within a settings table.
pub struct KeyGroup {
    /// The key of the table.
    pub name: &'static str,
    /// The expected form that an error names if the value is not a table.
    pub expected: &'static str,
    /// The setting that is switched on if the table exists.
    pub switch: Option<&'static str>,
}
