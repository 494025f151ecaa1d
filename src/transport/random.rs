//! Random identifiers.

use crate::protocol::trace_context::to_hex;

/// Returns a random identifier that cannot be guessed: 32 hexadecimal digits. `None` if the system has no random bytes.
pub(crate) fn random_id() -> Option<String> {
    random_bytes::<16>().map(|bytes| to_hex(&bytes))
}

/// Returns random bytes that cannot be guessed; `None` if the system has none.
pub(crate) fn random_bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}
