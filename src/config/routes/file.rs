//! A route file as it is written. Its JSON Schema is made from these types and their comments.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use crate::progress::dialect;

use super::keys::{Defaults, RouteTable};
use crate::config::values::compound::{Final, OneOrMore, Sources};
use crate::config::values::text::{
    Address, AnyTime, Count, Endpoint, Hidden, HostName, JsonPointer, OneOf, Origin, Period,
    Reference, Text, TimeOrOff,
};

/// The routes of `milepost serve`, and settings for `milepost wrap --config`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    /// Where clients are listened to, and whom.
    pub(super) server: Server,
    /// Where operators look. Without this table there is no admin listener.
    pub(super) admin: Option<Admin>,
    /// Where is kept what is to outlive the process.
    pub(super) state: State,
    /// What holds for every route unless it says otherwise.
    pub(super) defaults: Defaults,
    /// The routes, each with a path and an upstream.
    #[schemars(with = "Vec<RouteTable>")]
    pub(super) route: Vec<Spanned<RouteTable>>,
    /// Ways of saying "progress" that are not built in.
    #[schemars(with = "Vec<DialectTable>")]
    pub(super) dialect: Vec<Spanned<DialectTable>>,
}

/// Where clients are listened to, and whom.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Server {
    /// The address clients connect to. Default: "127.0.0.1:7332".
    #[schemars(with = "Option<Text<Address>>")]
    pub(super) listen: Option<Spanned<Text<Address>>>,
    /// Host names that are answered, besides the listener's own and loopback's. An address beyond
    /// loopback needs at least one. Default: none.
    pub(super) allowed_hosts: Vec<Text<HostName>>,
    /// Origins of browsers that are answered, besides loopback's. Default: none.
    pub(super) allowed_origins: Vec<Text<Origin>>,
    /// Whether every host name is answered: any page that a user of this network opens can then
    /// reach the routes. Default: false.
    pub(super) insecure: bool,
    /// The certificate and key of the listener. Default: none, it speaks plain HTTP.
    pub(super) tls: Option<Certificate>,
    /// What clients have to present as `Authorization: Bearer`. Default: nothing.
    pub(super) bearer: Option<Text<Hidden>>,
    /// How long open calls may go on after SIGTERM. Default: "30s".
    pub(super) drain: Option<Text<AnyTime>>,
    /// Client connections that may be open at once; more are refused with 503. Default: 10000.
    pub(super) max_connections: Option<Count<1>>,
    /// Bytes of a request's head; more is refused with 431. Default: 65536.
    pub(super) max_header_bytes: Option<Count<8192>>,
}

/// A certificate and its key. Paths are relative to the route file.
#[derive(Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { certificate = \"certificate.pem\", key = \"key.pem\" }"
)]
pub(super) struct Certificate {
    /// PEM file with the certificate and those that lead to its root.
    #[schemars(with = "String")]
    pub(super) certificate: Spanned<String>,
    /// PEM file with the private key.
    #[schemars(with = "String")]
    pub(super) key: Spanned<String>,
}

/// Where operators look.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Admin {
    /// The address. Default: "127.0.0.1:7333".
    #[schemars(with = "Option<Text<Address>>")]
    pub(super) listen: Option<Spanned<Text<Address>>>,
    /// What operators have to present as `Authorization: Bearer` for more than /livez and /readyz.
    /// Default: nothing, and other machines get no more than those.
    pub(super) bearer: Option<Text<Hidden>>,
}

/// Where is kept what is to outlive the process: how long tools took.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct State {
    /// The folder, relative to this file, or "off". Default: $XDG_STATE_HOME/milepost or
    /// ~/.local/state/milepost.
    #[schemars(with = "Option<String>")]
    pub(super) dir: Option<Spanned<String>>,
}

/// What stands behind a route.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { command = [\"server\"] }")]
pub(super) struct Upstream {
    /// The embedded legacy server.
    #[schemars(with = "Option<bool>")]
    pub(super) demo: Option<Spanned<bool>>,
    /// The command of a stdio server and its arguments.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) command: Option<Spanned<Vec<String>>>,
    /// What the environment of the command has besides ours.
    #[schemars(with = "Option<BTreeMap<String, String>>")]
    pub(super) env: Option<Spanned<BTreeMap<Spanned<String>, String>>>,
    /// The folder that the command runs in, relative to this file. Default: that of milepost.
    #[schemars(with = "Option<String>")]
    pub(super) cwd: Option<Spanned<String>>,
    /// Whether clients of 2026-07-28, which have no sessions, share one child per `Authorization`;
    /// otherwise they are refused. Default: true.
    #[schemars(with = "Option<bool>")]
    pub(super) share: Option<Spanned<bool>>,
    /// Children that may run at once; more sessions are refused with 503. Default: 100.
    #[schemars(with = "Option<Count<1>>")]
    pub(super) max_children: Option<Spanned<Count<1>>>,
    /// How long after its start a child may take to answer its first request. Default: "60s".
    #[schemars(with = "Option<Text<Period>>")]
    pub(super) start_timeout: Option<Spanned<Text<Period>>>,
    /// Time without use after which a session or a shared child is ended. Default: "30m".
    #[schemars(with = "Option<Text<TimeOrOff>>")]
    pub(super) idle_timeout: Option<Spanned<Text<TimeOrOff>>>,
    /// Whether a shared child that has died is started again, after a pause that grows; otherwise
    /// its clients get errors. Default: true.
    #[schemars(with = "Option<bool>")]
    pub(super) restart: Option<Spanned<bool>>,
    /// Bytes of the longest message of a shared child that is held in memory; a longer one goes to a
    /// temporary file. Default: 16777216.
    #[schemars(with = "Option<Count<65536>>")]
    pub(super) max_frame: Option<Spanned<Count<65536>>>,
    /// Bytes of the longest message of a shared child that goes to such a file; for a longer one its
    /// caller gets an error. Default: 1073741824.
    #[schemars(with = "Option<Count<0>>")]
    pub(super) max_spill: Option<Spanned<Count<0>>>,
    /// The Streamable HTTP endpoint of a server.
    #[schemars(with = "Option<Text<Endpoint>>")]
    pub(super) url: Option<Spanned<Text<Endpoint>>>,
    /// The HTTP+SSE endpoint of a server (2024-11-05).
    #[schemars(with = "Option<Text<Endpoint>>")]
    pub(super) sse: Option<Spanned<Text<Endpoint>>>,
    /// Whether the server is spoken to in HTTP/2 without TLS too; with TLS that is negotiated.
    /// Default: false.
    #[schemars(with = "Option<bool>")]
    pub(super) http2: Option<Spanned<bool>>,
    /// PEM file with certificate authorities that are trusted besides the system's.
    #[schemars(with = "Option<String>")]
    pub(super) ca_file: Option<Spanned<String>>,
    /// What is presented to a server that asks for a certificate.
    #[schemars(with = "Option<Certificate>")]
    pub(super) client_certificate: Option<Spanned<Certificate>>,
    /// For a server of tools that knows `tools/call` at `url` and not how a client begins: what the
    /// proxy answers in its place. Default: nothing.
    #[schemars(with = "Option<Lifecycle>")]
    pub(super) lifecycle: Option<Spanned<Lifecycle>>,
}

/// What is answered in the place of a server: `initialize`, `ping`, notifications, and every method
/// but `tools/call` and `tools/list`. Its URLs may be relative to `url` and are of the same origin.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { tools = \"/tools/list\" }, or {}"
)]
pub(super) struct Lifecycle {
    /// Where the list of tools is read, with a GET: `{"tools":[...]}` or an array. Default: it is asked
    /// for at `url`, with `tools/list`.
    #[schemars(with = "Option<Text<Reference>>")]
    pub(super) tools: Option<Spanned<Text<Reference>>>,
    /// Where the server is told of clients, with a POST: what it answers there says who it is. Default:
    /// it is not told.
    #[schemars(with = "Option<Text<Reference>>")]
    pub(super) initialize: Option<Spanned<Text<Reference>>>,
    /// Who the server is, for clients. Default: what it says at `initialize`, or its address.
    pub(super) server: Option<ServerInfo>,
    /// Whether results of tools that are bare payloads are wrapped as the specification has it. Default:
    /// true.
    pub(super) wrap_results: Option<bool>,
    /// Whether a stream is over with the last answer, also if the server leaves it open. Default: true.
    pub(super) end_with_answer: Option<bool>,
}

/// Who a server is.
#[derive(Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { name = \"reports\", version = \"1.0.0\" }"
)]
pub(super) struct ServerInfo {
    /// Its name.
    pub(super) name: String,
    /// Its version.
    pub(super) version: String,
}

/// What is done to headers.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { request = { remove = [\"cookie\"] } }"
)]
pub(super) struct Headers {
    /// Those of requests, on their way to the upstream.
    pub(super) request: HeaderRules,
    /// Those of responses, on their way to the client.
    pub(super) response: HeaderRules,
}

/// What is done to the headers of one direction.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table such as { set = { x-team = \"core\" }, remove = [\"cookie\"] }"
)]
pub(super) struct HeaderRules {
    /// Headers that are set, whatever they were.
    #[schemars(with = "BTreeMap<String, String>")]
    pub(super) set: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Headers that are taken out.
    #[schemars(with = "Vec<String>")]
    pub(super) remove: Vec<Spanned<String>>,
}

/// A way of saying "progress" that is not built in: JSON Pointers (RFC 6901) to what its messages
/// say. A `#` at the end of a part descends into JSON that stands in a string:
/// "/params/content/0/text#/percentComplete".
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DialectTable {
    /// Its name, for `dialects` of routes.
    #[schemars(with = "String")]
    pub(super) name: Spanned<String>,
    /// The method of its notifications, or several. Either this or `source` is there.
    #[schemars(with = "Option<OneOrMore>")]
    pub(super) method: Option<Spanned<OneOrMore>>,
    /// Where the server writes lines that are JSON objects: on its standard error (stderr), among its
    /// messages (stdout), or in the `data` of log notifications (log); or several of these. The pointers
    /// then begin at the object.
    #[schemars(with = "Option<Sources>")]
    pub(super) source: Option<Spanned<Sources>>,
    /// The id of the request that a message is about.
    pub(super) request_id: Option<Text<JsonPointer>>,
    /// What stands where the progress token belongs.
    pub(super) token: Option<Text<JsonPointer>>,
    /// The figure: a number, also in a string, or "45%" or "234/520".
    pub(super) progress: Option<Text<JsonPointer>>,
    /// The total of the figure.
    pub(super) total: Option<Text<JsonPointer>>,
    /// The words.
    pub(super) message: Option<Text<JsonPointer>>,
    /// What marks the last message of a call: a pointer to `true`, or a pointer and the value there.
    #[serde(rename = "final")]
    pub(super) last: Option<Final>,
    /// What a figure without total counts: hundredths (percent), parts of one (unit), or not known
    /// (raw). Default: "raw".
    pub(super) scale: Option<Text<OneOf<dialect::Count>>>,
}
