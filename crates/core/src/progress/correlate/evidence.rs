//! The kind of value that a server sends in place of tokens.

use crate::progress::policy::TokenIs;

/// The kind of value that a server has sent as the token so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Unknown: every value could be both an id and a token, or neither.
    None,
    /// Request ids: at least one value could only be an id, and none could only be a token.
    OnlyIds,
    /// Tokens: at least one value could only be a token, or the route says so.
    Tokens,
}

impl Evidence {
    pub(crate) fn from_setting(setting: Option<TokenIs>) -> Self {
        match setting {
            None => Self::None,
            Some(TokenIs::RequestId) => Self::OnlyIds,
            Some(TokenIs::Token) => Self::Tokens,
        }
    }
}
