//! Random identifiers.

use crate::protocol::trace_context::to_hex;

/// A random identifier that cannot be guessed: 32 hexadecimal digits. `None` if the system has no
/// random bytes.
pub(crate) fn random_id() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(to_hex(&bytes))
}
