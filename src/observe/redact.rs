//! Removes secrets from conversations that are recorded or shown. The same secret always gets the same mask, so equal
//! values stay equal, and a recording can be played again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;

use crate::progress::policy::masks::{MASK, Masks};
use crate::protocol::json::Members;
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::{json, secret};

/// Maximum number of secrets with separate masks, and of known ids and tokens that are not secrets. A conversation has
/// a handful; secrets beyond the limit share one mask.
const KNOWN_MAX: usize = 10_000;

/// Maximum number of nested levels that are searched for secrets. A deeper value is masked as a whole.
const DEPTH_MAX: usize = 64;

/// The member with the progress token of a request. Its value is never treated as a secret.
const TOKEN: &str = "progressToken";

/// The names around a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberName {
    /// None of them marks a secret.
    Plain,
    /// One of them marks the value as a secret.
    Secret,
}

/// The masks of one conversation.
#[derive(Debug, Default)]
pub struct Masking {
    masks: Masks,
    known: BTreeMap<Box<str>, usize>,
    /// The tokens and ids of requests, which are not secrets.
    names: BTreeSet<Box<str>>,
}

impl Masking {
    /// Masks secrets with `masks`.
    pub fn new(masks: Masks) -> Self {
        Self { masks, ..Self::default() }
    }

    /// Remembers the id and the token of a request, because servers send them back in members with other names.
    pub fn learn_names(&mut self, text: &Bytes) {
        let message = Message::parse(text.clone());
        if message.kind() == Kind::Batch {
            return message.elements().for_each(|element| self.learn_names(element.raw()));
        }
        let params = message.params();
        let meta = params.as_ref().and_then(|params| json::member(params, "_meta"));
        let token = meta.as_ref().and_then(|meta| json::member(meta, TOKEN));
        [message.id(), token].into_iter().flatten().for_each(|name| self.spare(&name));
    }

    /// Notes that this id or token, as written in JSON, is not a secret.
    pub fn spare(&mut self, name: &[u8]) {
        let words = json::decode_str(name).unwrap_or_else(|| String::from_utf8_lossy(name));
        if self.names.len() < KNOWN_MAX {
            self.names.insert((*words).into());
        }
    }

    /// Returns the text without its secrets. JSON stays JSON.
    pub fn mask(&mut self, text: &[u8]) -> Vec<u8> {
        let begin = json::skip_space(text, 0);
        let is_json = matches!(text.get(begin), Some(b'{' | b'['));
        // Search JSON as JSON, because names of members mark secrets; the rest of the line is plain text.
        if let Some(end) = json::skip_value(text, begin).filter(|_| is_json) {
            let mut out = text.get(..begin).unwrap_or_default().to_vec();
            self.value(text, begin..end, MemberName::Plain, 0, &mut out);
            let rest = String::from_utf8_lossy(text.get(end..).unwrap_or_default());
            out.extend_from_slice(self.words(&rest).as_bytes());
            return out;
        }
        self.words(&String::from_utf8_lossy(text)).into_bytes()
    }

    /// Returns plain text without what looks like a secret.
    pub fn words(&mut self, words: &str) -> String {
        let mut out = String::with_capacity(words.len());
        let mut shown = 0;
        for Range { start, end } in self.masks.secrets(words) {
            out.push_str(words.get(shown..start).unwrap_or_default());
            let mask = self.mask_of(words.get(start..end).unwrap_or_default());
            out.push_str(&mask);
            shown = end;
        }
        out.push_str(words.get(shown..).unwrap_or_default());
        out
    }

    fn mask_of(&mut self, secret: &str) -> String {
        if self.names.contains(secret) {
            return secret.to_owned();
        }
        // Compute the number of a possible new secret before the look-up borrows the table.
        let next = self.known.len() + 1;
        if let Some(number) = self.known.get(secret) {
            return format!("{MASK}{number}");
        }
        if next > KNOWN_MAX {
            return MASK.to_owned();
        }
        self.known.insert(secret.into(), next);
        format!("{MASK}{next}")
    }

    /// Writes the mask of a string or number that is a secret, however short it is.
    fn code(&mut self, value: &[u8], out: &mut Vec<u8>) {
        let words = json::decode_str(value).unwrap_or_else(|| String::from_utf8_lossy(value));
        let masked = self.mask_of(&words);
        // Do not mask a word that is also the id of a request.
        if masked == words {
            out.extend_from_slice(value);
        } else {
            out.extend_from_slice(&json::quote(&masked));
        }
    }

    /// Writes a value that has this name.
    fn value(
        &mut self,
        text: &[u8],
        at: Range<usize>,
        name: MemberName,
        depth: usize,
        out: &mut Vec<u8>,
    ) {
        let value = text.get(at.clone()).unwrap_or_default();
        let secret = name == MemberName::Secret;
        match value.first() {
            Some(b'{' | b'[') if depth > DEPTH_MAX => out.extend_from_slice(&json::quote(MASK)),
            Some(b'{') => {
                let mut written = 0;
                for member in Members::new(value) {
                    let name = json::decode_str(value.get(member.key.clone()).unwrap_or_default());
                    let name = name.unwrap_or_default();
                    out.extend_from_slice(
                        value.get(written..member.value.start).unwrap_or_default(),
                    );
                    written = member.value.end;
                    // Keep the progress token, because a replay finds the call by it.
                    if name == TOKEN {
                        out.extend_from_slice(value.get(member.value).unwrap_or_default());
                    } else {
                        let is_doubtful = {
                            let text = value.get(member.value.clone()).unwrap_or_default();
                            let words = json::decode_str(text);
                            let words = words.unwrap_or_else(|| String::from_utf8_lossy(text));
                            secret::is_doubtful_secret(&name, &words)
                        };
                        if is_doubtful {
                            self.code(value.get(member.value).unwrap_or_default(), out);
                            continue;
                        }
                        let is_secret = secret || secret::is_secret_name(&name);
                        let name = if is_secret { MemberName::Secret } else { MemberName::Plain };
                        self.value(value, member.value, name, depth + 1, out);
                    }
                }
                out.extend_from_slice(value.get(written..).unwrap_or_default());
            }
            Some(b'[') => {
                let mut written = 0;
                for element in json::elements(value).map(|(all, _)| all).unwrap_or_default() {
                    out.extend_from_slice(value.get(written..element.start).unwrap_or_default());
                    written = element.end;
                    self.value(value, element, name, depth + 1, out);
                }
                out.extend_from_slice(value.get(written..).unwrap_or_default());
            }
            Some(b'"') => {
                let Some(words) = json::decode_str(value) else {
                    // The value is no string, or cannot be read as one.
                    let words = if secret { MASK.into() } else { String::from_utf8_lossy(value) };
                    return out.extend_from_slice(self.words(&words).as_bytes());
                };
                let masked = if secret && !secret::is_plain(&words) {
                    self.mask_of(&words)
                } else {
                    self.words(&words)
                };
                // Without a secret, the text stays exactly as it was.
                if masked == words {
                    out.extend_from_slice(value);
                } else {
                    out.extend_from_slice(&json::quote(&masked));
                }
            }
            _ => {
                let words = String::from_utf8_lossy(value);
                let hidden = secret && !secret::is_plain(&words) && words != "null";
                match hidden.then(|| self.mask_of(&words)) {
                    Some(masked) if masked != words => {
                        out.extend_from_slice(&json::quote(&masked));
                    }
                    _ => out.extend_from_slice(value),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(masking: &mut Masking, text: &str) -> String {
        String::from_utf8(masking.mask(text.as_bytes())).unwrap()
    }

    #[test]
    fn one_secret_has_one_mask_and_json_stays_json() {
        let mut masking = Masking::default();
        let text = r#"{"a": {"password":"hunter two"}, "apiKey":["hunter two", 12345678], "n":1}"#;
        let out = masked(&mut masking, text);
        assert_eq!(out, r#"{"a": {"password":"***1"}, "apiKey":["***1", "***2"], "n":1}"#);
        let out = masked(&mut masking, r#"{"message":"login with password=\"hunter two\" \n"}"#);
        assert_eq!(out, r#"{"message":"login with password=\"***1\" \n"}"#);
        let out = masked(&mut masking, "Authorization: Bearer abcdef0123456789abcdef\n");
        assert!(!out.contains("abcdef0123"), "{out}");
    }

    #[test]
    fn codes_and_sessions_are_masked_by_their_values() {
        let mut masking = Masking::default();
        let text = r#"{"pin":1234,"otp":"123456","session":{"id":3},"sessionId":"0123-abcd-4567-ef89","keys":["a"]}"#;
        let out = masked(&mut masking, text);
        let expected =
            r#"{"pin":"***1","otp":"***2","session":{"id":3},"sessionId":"***3","keys":["a"]}"#;
        assert_eq!(out, expected);
    }

    #[test]
    fn what_names_a_request_stays() {
        let mut masking = Masking::default();
        let ask = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"tok-0123456789"}}}"#;
        masking.learn_names(&Bytes::from(ask));
        assert_eq!(masked(&mut masking, ask), ask);
        let told = r#"{"method":"$/progress","params":{"token":"tok-0123456789"}}"#;
        assert_eq!(masked(&mut masking, told), told);
        let other = r#"{"params":{"token":"tok-9999999999"}}"#;
        assert_eq!(masked(&mut masking, other), r#"{"params":{"token":"***1"}}"#);
    }

    #[test]
    fn nothing_is_too_deep_or_too_odd() {
        let mut masking = Masking::default();
        let deep = format!("{}{}", "[".repeat(9000), "]".repeat(9000));
        let out = masked(&mut masking, &deep);
        assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok());
        for odd in ["", "{", "{\"token\":", "[1,", "{\"password\":\"x", "\u{0}{}"] {
            masked(&mut masking, odd);
        }
        let odd = masked(&mut masking, r#"{"password":"unfinished business"#);
        assert!(!odd.contains("business"), "{odd}");
    }
}
