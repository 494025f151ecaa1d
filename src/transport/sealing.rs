//! Encryption with AES-256-GCM: without the key the bytes can be neither read nor changed.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Random bytes, which must be new for each text that is sealed with the same key.
pub(crate) type SealNonce = [u8; NONCE_LEN];

/// Number of bytes that a sealed text is longer than its plain text.
pub(crate) const SEAL_TAG: usize = 16;

/// A key that seals texts and opens them.
pub(crate) struct SealKey {
    key: LessSafeKey,
}

impl SealKey {
    /// Returns a key made of these bytes; `None` if the cipher does not accept them.
    pub(crate) fn new(bytes: &[u8; 32]) -> Option<Self> {
        Some(Self { key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?) })
    }

    /// Seals `text` in place. It can only be opened with the same `bound_to`. `None` if the text is too long.
    pub(crate) fn seal(&self, nonce: SealNonce, bound_to: &[u8], text: &mut Vec<u8>) -> Option<()> {
        // The caller must supply a new random nonce for each text, because a repeated nonce would break AES-GCM.
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(bound_to), text).ok()
    }

    /// Opens a sealed text. `None` if it was changed, or sealed with another key, nonce or binding.
    pub(crate) fn open(&self, nonce: SealNonce, bound_to: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let length = self.key.open_in_place(nonce, Aad::from(bound_to), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}
