//! The answers of the proxy in the place of a server.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

/// The answers of the proxy in the place of a server that knows `tools/call` only.
#[derive(Clone, PartialEq)]
pub struct Lifecycle {
    /// The URL of its list of tools, read with a GET; `None`: the list is asked for as usual. Of the same
    /// origin as the endpoint.
    pub tools: Option<Url>,
    /// The URL where the server is told of a client, with a POST, and answers with its name and version;
    /// `None`: it is not told. Of the same origin.
    pub initialize: Option<Url>,
    /// The name and version of the server; `None`: as the server says itself, or its address.
    pub server: Option<ServerInfo>,
    /// Bare results of tools are wrapped.
    pub wrap_results: bool,
    /// A stream is over with the last answer.
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
