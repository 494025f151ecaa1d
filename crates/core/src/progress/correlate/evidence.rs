//! The kind of value that an upstream puts in the place of tokens.

use crate::progress::policy::TokenIs;

/// The kind of value that an upstream has sent as the token so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Only values that are consistent with both meanings, or with neither.
    None,
    /// Values that only fitted request ids, and none that only fitted a token.
    OnlyIds,
    /// The server sends tokens: a value matched only a token, or the route says so.
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
