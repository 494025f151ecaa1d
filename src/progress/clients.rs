//! What is known of clients by what they call themselves in `initialize`.

/// Clients that read a notification and the answer behind it in the order in which they came, and
/// therefore need no pacing (rule G3): name, and version where the name alone says too little.
/// Measured by writing both at once, a few hundred times.
const ORDERLY: [(&str, Option<&str>); 4] = [
    // The official Python SDK, 1.x and 2.x, as it calls itself unless told otherwise.
    ("mcp", Some("0.1.0")),
    // The official Rust SDK, and two agents that are built on it.
    ("rmcp", None),
    ("codex-mcp-client", None),
    ("goose", None),
];

/// Whether a client of this name and version may be written to at once.
pub(super) fn is_orderly(name: &str, version: &str) -> bool {
    ORDERLY.iter().any(|(known, only)| *known == name && only.is_none_or(|only| only == version))
}
