//! Encryption with AES-256-GCM: without the key the bytes can be neither read nor changed.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Random bytes, new for each text that a key seals.
pub(crate) type SealNonce = [u8; NONCE_LEN];

/// Bytes that a seal adds to its text.
pub(crate) const SEAL_TAG: usize = 16;

/// A key that seals texts.
pub(crate) struct SealKey {
    key: LessSafeKey,
}

impl SealKey {
    /// The seal with these bytes as its key. `None` if the cipher does not take them.
    pub(crate) fn new(bytes: &[u8; 32]) -> Option<Self> {
        Some(Self { key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?) })
    }

    /// Seals `text` in its place. Only who knows `bound_to` opens it again. `None` if the text is too long.
    pub(crate) fn seal(&self, nonce: SealNonce, bound_to: &[u8], text: &mut Vec<u8>) -> Option<()> {
        // The caller supplies a random nonce for each text: with AES-GCM a repeated nonce would break the key.
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
