//! Presets: named settings for routes to known servers.
//!
//! A preset is written as a route file has it: a `[[route]]` without path and upstream, and the dialects that its
//! settings name. It is read like a route file. [`super::resolve`] uses its values for keys that the route itself does
//! not have.

use crate::config::values::Word;

/// A bundle of settings with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// The name in route files and flags.
    pub name: &'static str,
    /// The names with which these servers identify themselves to clients.
    pub names: &'static [&'static str],
    /// The servers that the preset is for, and its effect, in one line.
    pub servers: &'static str,
    /// The settings, as the lines of a route file.
    pub lines: &'static str,
}

/// The names of this server in all its versions.
const KUZUMEM: [&str; 2] = ["memory-bank-mcp", "KuzuMem-MCP"];

macro_rules! presets {
    ($($name:literal, $names:expr, $servers:literal, $lines:literal;)+) => {
        impl Word for Preset {
            const WORDS: &'static [(&'static str, Self)] =
                &[$(($name, Self { name: $name, names: &$names, servers: $servers, lines: $lines })),+];
        }
    };
}

presets! {
    "codex", ["codex-mcp-server"], "Codex as a server: the words of its events, and a sign of life for each event",
r#"[[route]]
# The events name the request; the client gets the events, too
dialects = ["defaults", "codex"]
"#;

    "gradio", ["gradio"], "Gradio apps: counters without a total, whose words say \"Step 2 of 4\"",
r#"[[route]]
# A number without a total gives way to the value in the words
value_from = "words"
"#;

    "kuzumem", KUZUMEM, "KuzuMem-MCP since June 2025: its progress stands on standard error",
r#"[[route]]
# Progress is a member of JSON lines on standard error and nowhere else
dialects = ["defaults", "stderr"]
"#;

    "kuzumem-handwritten", KUZUMEM,
    "KuzuMem-MCP of May 2025, without an SDK: over HTTP no client can begin",
r#"[[route]]
# Only tools/call is known at the endpoint (upstream.url); over stdio nothing has to be set
upstream.lifecycle = { tools = "/tools/list", initialize = "/initialize" }
"#;

    "kuzumem-sdk", KUZUMEM, "KuzuMem-MCP of May and June 2025, on the TypeScript SDK: its progress names requests",
r#"[[route]]
# The id of the request stands where the client's token belongs
token_is = "request_id"
"#;

    "mcp-devtools", ["mcp-devtools"], "mcp-devtools with project_actions: its progress waits for a token in the arguments",
r#"[[route]]
# The tool looks for the token in its arguments, where no client puts it, and takes only strings
tools.project_actions = { ask = { token_in_arguments = true } }
# The tool reports each line of output, thousands a second
coalesce = "all"
# Other tools tell how far they are in log messages
dialects = ["defaults", "log"]
"#;

    "plexus", ["plexus", "substrate"], "Plexus substrate behind its MCP bridge: words on the GET stream, percentages without total",
r#"[[dialect]]
# What an activation streams is the text in `data` of log messages
name = "plexus-data"
source = "log"
message = "/data"

[[dialect]]
name = "plexus-error"
source = "log"
message = "/error"

[[route]]
dialects = ["defaults", "log", "plexus-data", "plexus-error"]
# Log messages come on the GET stream, whatever call they are about
own_get = true
# What progress counts without a total is a percentage
scale = "percent"
"#;

    "scout", ["scout"], "scout on FastMCP before 1.29: progress on the GET stream, which begins anew with each tenant",
r#"[[route]]
# Progress comes on the GET stream, which many clients do not open
own_get = true
# A figure that falls is the next tenant's
on_fall = "rebase"
"#;

    "swissarmyhammer", ["swissarmyhammer"], "SwissArmyHammer: shell, search and flows tell how far they are in log messages",
r#"[[route]]
# Log messages whose logger is the tool
dialects = ["defaults", "log"]
# They come on the GET stream, whatever call they are about
own_get = true
"#;
}
