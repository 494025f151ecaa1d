//! The correlator: facts learned about how an upstream names requests.

use crate::progress::policy::TokenIs;

/// What an upstream has been seen to put where the token belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Nothing but values that fit both or none.
    None,
    /// Values that only fitted request ids, and none that only fitted a token.
    OnlyIds,
    /// A value that only fitted a token, or the route says so.
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
