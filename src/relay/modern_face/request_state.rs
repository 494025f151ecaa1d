//! The `requestState` of a question. It is sealed, so that a client can neither read nor forge it.
//!
//! ```text
//! base64url( nonce 12 | AES-256-GCM( the number of the question 16 | the digest of the request 32 ) + 16 )
//! ```
//!
//! Each face has its own key. So a state is valid only for the face's route and principal, and only as long as the
//! server whose call it continues.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::transport::random::random_bytes;
use crate::transport::sealing::{SealKey, SealNonce};

/// A random number of a question, which cannot be guessed.
pub(super) type QuestionNumber = [u8; 16];

/// The length of a state in characters.
const STATE_LENGTH: usize = 102;

/// Data that a state is authenticated with: its kind and version.
const BOUND_TO: &[u8] = b"requestState 1";

/// The content of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestState {
    pub(super) number: QuestionNumber,
    /// A digest of the method and the parameters of the request during which the question came.
    pub(super) digest: [u8; 32],
}

/// Seals and opens the states of one face.
pub(super) struct StateSeal {
    key: SealKey,
}

impl StateSeal {
    /// Returns a seal with a new key. `None` if the system has no random bytes.
    pub(super) fn random() -> Option<Self> {
        Some(Self { key: SealKey::new(&random_bytes()?)? })
    }

    /// Returns the text of a state for a client. `None` if the system has no random bytes.
    pub(super) fn seal(&self, state: &RequestState) -> Option<String> {
        let nonce: SealNonce = random_bytes()?;
        let mut sealed = [&state.number[..], &state.digest].concat();
        self.key.seal(nonce, BOUND_TO, &mut sealed)?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// Opens a text that a client sends as a state. Returns `None` if it was not sealed by this face.
    pub(super) fn open(&self, text: &str) -> Option<RequestState> {
        // Check the length before decoding, because a client can send a text of any length.
        if text.len() != STATE_LENGTH {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk()?;
        let plain = self.key.open(*nonce, BOUND_TO, sealed)?;
        let (number, digest) = plain.split_first_chunk()?;
        Some(RequestState { number: *number, digest: digest.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: RequestState = RequestState { number: [7; 16], digest: [9; 32] };

    #[test]
    fn a_state_is_opened_by_its_own_face_only() {
        let (seal, other) = (StateSeal::random().unwrap(), StateSeal::random().unwrap());
        let text = seal.seal(&STATE).unwrap();
        assert_eq!(text.len(), STATE_LENGTH);
        assert_eq!(seal.open(&text), Some(STATE));
        assert_eq!(other.open(&text), None);
        assert_ne!(seal.seal(&STATE).unwrap(), text, "a state says nothing to who compares states");
    }

    #[test]
    fn a_changed_state_is_none() {
        let seal = StateSeal::random().unwrap();
        let text = seal.seal(&STATE).unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(seal.open(&URL_SAFE_NO_PAD.encode(&changed)), None, "byte {at}");
        }
        for cut in 0..text.len() {
            assert_eq!(seal.open(&text[..cut]), None);
        }
        assert_eq!(seal.open(&format!("{text}A")), None);
        assert_eq!(seal.open(&"\u{e9}".repeat(STATE_LENGTH / 2)), None);
    }
}
