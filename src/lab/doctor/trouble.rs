//! The reasons why a server does not answer.

use std::time::Duration;

use super::clue::clue;
use super::traffic::TrafficEntry;
use crate::protocol::jsonrpc::Message;

/// The reason why a request got no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::lab) enum Trouble {
    /// The server has not answered within this time.
    #[error("no answer within {0:?}")]
    Silent(Duration),
    /// The server has not answered within this time, and its output gives a hint about the reason.
    #[error("no answer to `initialize` within {0:?}: {1}")]
    Unreadable(Duration, String),
    /// The server has ended.
    #[error("the server ended{0}")]
    Ended(String),
    /// The response is not MCP, or no response arrived.
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

impl Trouble {
    /// Returns the trouble with the hint that the server's output gives about why `initialize` was not answered.
    pub(super) fn with_clue(self, entries: &[TrafficEntry]) -> Self {
        match (self, clue(entries)) {
            (Self::Silent(patience), Some(clue)) => Self::Unreadable(patience, clue),
            (Self::Ended(how), Some(clue)) if !how.contains("its last words") => {
                Self::Ended(format!("{how}: {clue}"))
            }
            (trouble, _) => trouble,
        }
    }
}
