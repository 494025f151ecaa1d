//! The answers that Milepost gives in the place of a server.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

/// The answers that Milepost gives in the place of a server that knows `tools/call` only.
#[derive(Clone, PartialEq)]
pub struct Lifecycle {
    /// The URL of the server's list of tools, read with a GET. `None`: the list is requested with `tools/list`. It has
    /// the same origin as the endpoint.
    pub tools: Option<Url>,
    /// The URL that Milepost POSTs each new client to; the response has the server's name and version. `None`: clients
    /// are not reported. It has the same origin as the endpoint.
    pub initialize: Option<Url>,
    /// The name and version that clients get. `None`: those of the server's response to `initialize`, or its address.
    pub server: Option<ServerInfo>,
    /// Whether bare results of tools are wrapped as MCP requires.
    pub wrap_results: bool,
    /// Whether a stream ends with the last answer, even if the server leaves it open.
    pub end_with_answer: bool,
}

/// The name and version of a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { name = \"reports\", version = \"1.0.0\" }"
)]
pub struct ServerInfo {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
}
