//! What is known of clients by the name they give in `initialize`.

/// Clients that read a notification and the answer behind it in the order in which they came, and
/// therefore need no pacing (rule G3). Measured with one write that holds both.
const ORDERLY: [&str; 4] = [
    // The official Python SDK, 1.x and 2.x, as it calls itself unless told otherwise.
    "mcp",
    // The official Rust SDK, and two agents that are built on it.
    "rmcp",
    "codex-mcp-client",
    "goose",
];

/// Whether a client of this name may be written to at once.
pub(super) fn is_orderly(name: &str) -> bool {
    ORDERLY.contains(&name)
}
