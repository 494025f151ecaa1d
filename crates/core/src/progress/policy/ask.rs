//! Additions to the requests of clients, for servers that report progress only on request.
//!
//! The additions are inserted between the client's bytes. All client bytes stay, except for a token that the server
//! gets with another type or not at all. A member that the client has set stays. The additions depend only on the
//! message and the settings: over HTTP several filters know one request, and all of them have to know the token that
//! the server gets.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::progress::durations::fnv_1a;
use crate::protocol::jsonrpc::Key;
use crate::protocol::mcp;

/// The members of an object, by name.
pub type JsonObject = Map<String, Value>;

/// The largest integer that a double represents exactly. Servers in JavaScript read no larger integer correctly.
const INTEGER_MAX: i64 = (1 << 53) - 1;

/// The token that replaces an empty string, because many servers treat an empty string as no token.
const NO_EMPTY_TOKEN: &[u8] = b"milepost";

/// Whether only the client may set a member of `_meta`. Such members are its token, and the members of the
/// specification, for instance the log level.
pub fn is_clients_own(name: &str) -> bool {
    name == "progressToken" || name.starts_with(mcp::META_PREFIX)
}

/// The JSON type of the tokens that a server gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenType {
    /// The type of the client's token.
    #[default]
    Same,
    /// A string that is not empty. An integer becomes its digits.
    String,
    /// An integer from 1 to 2^53 - 1. Any other token is replaced by an integer that is derived from it.
    Integer,
    /// The server gets no token. Towards the client, the client's own token still names the call: in heartbeats, and in
    /// progress that the server reports in other ways.
    None,
}

/// The lowest level of the log messages that a server is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the levels of the specification, which has them from RFC 5424")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// All levels with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("debug", Self::Debug),
        ("info", Self::Info),
        ("notice", Self::Notice),
        ("warning", Self::Warning),
        ("error", Self::Error),
        ("critical", Self::Critical),
        ("alert", Self::Alert),
        ("emergency", Self::Emergency),
    ];

    pub(crate) fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, level)| *level == self);
        found.map_or("info", |(name, _)| name)
    }
}

/// The additions to requests, which may differ from tool to tool. By default there are none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ask {
    /// Whether the token is also put into `params.arguments._meta.progressToken` of `tools/call`, as a string.
    pub token_in_arguments: bool,
    /// The type of the token that the server gets.
    pub token_type: TokenType,
    /// Members that are added to `params._meta` of `tools/call`.
    pub meta: JsonObject,
    /// Members that are added to `params.arguments` of `tools/call`.
    pub arguments: JsonObject,
}

impl Ask {
    /// Whether nothing is added to any request.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { token_in_arguments, token_type, meta, arguments } = self;
        !token_in_arguments
            && *token_type == TokenType::Same
            && meta.is_empty()
            && arguments.is_empty()
    }

    /// Returns the token that the server gets; `None` if it is the client's own.
    pub(crate) fn token(&self, token: &Key) -> Option<Key> {
        match (self.token_type, token) {
            (TokenType::Same | TokenType::None, _) => None,
            (TokenType::String, Key::Text(text)) => {
                text.is_empty().then(|| Key::Text(Bytes::from_static(NO_EMPTY_TOKEN)))
            }
            (TokenType::String, number) => Some(Key::Text(number.to_json())),
            (TokenType::Integer, Key::Integer(1..=INTEGER_MAX)) => None,
            (TokenType::Integer, other) => Some(Key::Integer(integer_for(other))),
        }
    }
}

/// Returns a positive integer that is derived from a token. There are 2^53 integers, so it is unlikely that two open
/// requests get the same integer and share their progress.
fn integer_for(token: &Key) -> i64 {
    let hash = fnv_1a(token.to_json());
    // The upper bits of FNV-1a are better mixed than the lower bits, and 53 bits always fit into a double.
    i64::try_from(hash >> 11).unwrap_or(1).max(1)
}
