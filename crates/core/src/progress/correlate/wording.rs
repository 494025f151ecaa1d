//! Which texts a notification that Milepost writes may contain.

use crate::progress::clients;
use crate::progress::correlate::call::Call;
use crate::progress::correlate::handshake::Handshake;
use crate::progress::policy::Policy;
use crate::protocol::mcp::Revision;

/// Which texts a notification that Milepost writes may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wording {
    /// The server's text, or a text of Milepost.
    Any,
    /// Only texts of the server (`words_in_2024 = false`).
    Server,
    /// No text, because the client fails on a text.
    None,
}

impl Wording {
    /// Returns which texts a notification of Milepost may contain for `call` under `policy`. Only revision 2024-11-05
    /// is a problem: there `message` is an unknown member, which most clients ignore.
    pub(crate) fn of(call: Option<&Call>, handshake: &Handshake, policy: &Policy) -> Self {
        let own = call.and_then(|call| call.revision);
        if own.or(handshake.revision) != Some(Revision::V2024_11_05) {
            return Self::Any;
        }
        let client = call.and_then(|call| call.client.as_ref()).or(handshake.client.as_ref());
        match policy.words_in_2024 {
            _ if client.is_some_and(|client| clients::fails_on_words(client)) => Self::None,
            true => Self::Any,
            false => Self::Server,
        }
    }
}
