//! The header in which trusted front proxies name their clients.

use crate::config::values::Word;

/// The header in which trusted fronts name their clients, if they write only one of the two. The other header is then
/// removed, because only the client can have written it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FrontHeader {
    /// Fronts may write either header, and replace or remove what their clients send in both.
    #[default]
    Either,
    /// `X-Forwarded-*`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl Word for FrontHeader {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("either", Self::Either),
        ("x-forwarded-for", Self::XForwardedFor),
        ("forwarded", Self::Forwarded),
    ];
}
