//! The tokens of the latest progress on the stream of a single call, with their meanings.

use smallvec::SmallVec;

use crate::progress::correlate::evidence::Evidence;
use crate::progress::correlate::open_calls::Attributed;
use crate::protocol::jsonrpc::Key;

/// The longest token, in bytes, whose meaning is cached for the next message.
const KNOWN_TOKEN_MAX: usize = 256;

/// Limit of the tokens per call whose meaning is cached: the token of the call, and a token that the server invented.
const KNOWN_TOKENS_MAX: usize = 2;

/// The state on which the meaning of a token depends: the number of changes of names, and the kind of value that the
/// server sends in place of tokens.
pub(crate) type NamesState = (u64, Evidence);

/// A token of progress on the stream of a single call, and the call that the token meant when it was looked up.
#[derive(Debug)]
pub(crate) struct KnownToken {
    /// The token as the server wrote it.
    text: Vec<u8>,
    pub(crate) key: Key,
    pub(crate) means: Attributed,
    /// Whether a call has exactly this token.
    pub(crate) is_given: bool,
    /// The state on which the meaning depended at the lookup.
    state: NamesState,
}

/// The tokens of the latest progress on the stream of a single call. A server may alternate between two tokens.
#[derive(Debug, Default)]
pub(crate) struct KnownTokens {
    tokens: SmallVec<[Box<KnownToken>; 1]>,
    /// The index of the entry that is replaced next.
    oldest: usize,
}

impl KnownTokens {
    /// Returns the cached token with this text, if its meaning in `state` is still the same.
    pub(crate) fn get(&self, text: &[u8], state: NamesState) -> Option<&KnownToken> {
        // The cached meaning is valid only while no call or name has changed since, and while the server is still
        // believed to use the same kind of value as token.
        let mut tokens = self.tokens.iter().map(|known| &**known);
        tokens.find(|known| known.state == state && known.text == text)
    }

    /// Caches the meaning of a token. `is_given`: a call has exactly this token.
    pub(crate) fn note(
        &mut self,
        text: &[u8],
        key: Key,
        (means, is_given): (Attributed, bool),
        state: NamesState,
    ) {
        if text.len() > KNOWN_TOKEN_MAX {
            return;
        }
        if self.tokens.len() < KNOWN_TOKENS_MAX {
            let text = text.to_vec();
            self.tokens.push(Box::new(KnownToken { text, key, means, is_given, state }));
            return;
        }
        // Reuse the buffer of the oldest entry: a server that invents a token for each report must
        // not cost an allocation each time.
        let known = &mut self.tokens[self.oldest];
        self.oldest = (self.oldest + 1) % KNOWN_TOKENS_MAX;
        known.text.clear();
        known.text.extend_from_slice(text);
        (known.key, known.means, known.is_given, known.state) = (key, means, is_given, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::ids::CallId;

    #[test]
    fn a_meaning_holds_in_its_state_and_the_oldest_gives_way() {
        let mut known = KnownTokens::default();
        let state = (1, Evidence::None);
        for text in ["1", "2", "3"] {
            let (key, means) = (Key::Integer(text.parse().unwrap()), (CallId(0), None));
            known.note(text.as_bytes(), key, (means, true), state);
        }
        let is_known = |text: &str, state| known.get(text.as_bytes(), state).is_some();
        assert_eq!(["1", "2", "3"].map(|text| is_known(text, state)), [false, true, true]);
        assert!(!is_known("3", (2, Evidence::None)) && !is_known("3", (1, Evidence::Tokens)));
    }

    #[test]
    fn long_tokens_are_not_kept() {
        let mut known = KnownTokens::default();
        let (text, state) = (vec![b'1'; KNOWN_TOKEN_MAX + 1], (1, Evidence::None));
        known.note(&text, Key::Integer(1), ((CallId(0), None), true), state);
        assert!(known.get(&text, state).is_none());
    }
}
