//! Why a server does not answer.

use std::time::Duration;

use crate::protocol::jsonrpc::Message;

/// The reason why a request got no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::commands) enum Trouble {
    /// The server has sent nothing.
    #[error("no answer within {0:?}")]
    Silent(Duration),
    /// The server has ended.
    #[error("the server ended{0}")]
    Ended(String),
    /// The response is not MCP, or there is no response.
    #[error("{0}")]
    Failed(String),
    /// The server answered with an error.
    #[error("the server answered {method} with {error}", error = super::findings::shown(.answer.raw()))]
    Refused {
        /// The method of the request.
        method: String,
        /// The answer.
        answer: Message,
    },
}
