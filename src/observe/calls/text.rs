//! The texts of messages, as they are kept for observers and as they are shown.

use std::sync::Arc;

use crate::observe::redact::Masking;

/// Maximum number of bytes of one message that are kept for observers. The rest is dropped.
pub const TEXT_MAX: usize = 2 << 10;

/// The sign at the end of cut text.
const REST: char = '…';

/// A copy of a message or of its beginning. The original bytes would keep a whole read buffer in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageText {
    bytes: Arc<[u8]>,
    is_cut: bool,
}

impl MessageText {
    pub(super) fn of(text: &[u8]) -> Self {
        let text = text.trim_ascii();
        let fits = text.len() <= TEXT_MAX;
        let end = if fits { text.len() } else { boundary(text, TEXT_MAX) };
        Self { bytes: text.get(..end).unwrap_or_default().into(), is_cut: !fits }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the text as complete JSON, with closing brackets if the text was cut.
    pub(super) fn closed(&self) -> Vec<u8> {
        if !self.is_cut {
            return self.bytes.to_vec();
        }
        let (begin, closing) = closed(&self.bytes);
        [begin, closing].concat()
    }

    /// Returns the text without secrets.
    pub(super) fn shown(&self, masking: &mut Masking) -> String {
        if !self.is_cut {
            return String::from_utf8_lossy(&masking.mask(&self.bytes)).into_owned();
        }
        // JSON is searched as JSON, because the names of its members mark secrets.
        let (mut text, closing) = closed(&self.bytes);
        text.extend_from_slice(&closing);
        let mut shown = masking.mask(&text);
        if shown.ends_with(&closing) {
            shown.truncate(shown.len() - closing.len());
        }
        let mut shown = String::from_utf8_lossy(&shown).into_owned();
        shown.push(REST);
        shown
    }
}

/// Returns the last character boundary up to `max`.
fn boundary(text: &[u8], max: usize) -> usize {
    let begins = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    (max.saturating_sub(3)..=max).rev().find(begins).unwrap_or(max)
}

/// Returns the beginning of a JSON text without an incomplete escape, and the text that closes the rest.
fn closed(text: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut open = Vec::new();
    // The start of an escape that is not complete, and the number of its missing characters.
    let mut escape: Option<(usize, usize)> = None;
    let mut in_string = false;
    for (at, byte) in text.iter().enumerate() {
        match (&mut escape, byte) {
            (Some((begun, left)), _) => {
                if at == *begun + 1 && *byte == b'u' {
                    *left = 4;
                } else {
                    *left -= 1;
                }
                if *left == 0 {
                    escape = None;
                }
            }
            (None, b'"') => in_string = !in_string,
            (None, b'\\') if in_string => escape = Some((at, 1)),
            (None, _) if in_string => {}
            (None, b'{') => open.push(b'}'),
            (None, b'[') => open.push(b']'),
            (None, b'}' | b']') => drop(open.pop()),
            (None, _) => {}
        }
    }
    let end = escape.map_or(text.len(), |(begun, _)| begun);
    let quote = in_string.then_some(b'"');
    let closing = quote.into_iter().chain(open.into_iter().rev()).collect();
    (text.get(..end).unwrap_or_default().to_vec(), closing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, closed_by: &str) {
        let (begin, closing) = closed(text.as_bytes());
        let whole = [begin, closing].concat();
        assert_eq!(String::from_utf8(whole).unwrap(), closed_by);
    }

    #[test]
    fn what_is_cut_off_is_closed() {
        check(r#"{"a":[1,{"b":"c"#, r#"{"a":[1,{"b":"c"}]}"#);
        check(r#"{"a":"b\"#, r#"{"a":"b"}"#);
        check(r#"{"a":"b\u00"#, r#"{"a":"b"}"#);
        check(r#"{"a":"b\u00e4"#, r#"{"a":"b\u00e4"}"#);
        check(r#"{"a":"b\\"#, r#"{"a":"b\\"}"#);
        check(r#"{"a"}]}"#, r#"{"a"}]}"#);
        check("words", "words");
    }

    #[test]
    fn a_secret_that_is_cut_through_is_one() {
        let mut masking = Masking::default();
        for filler in 1900..2060 {
            let text = format!(
                r#"{{"a":"{}","password":"hunter two and more","b":1}}"#,
                "ä".repeat(filler / 2)
            );
            let shown = MessageText::of(text.as_bytes()).shown(&mut masking);
            assert!(!shown.contains("hunt"), "{shown}");
            assert!(shown.len() < TEXT_MAX + 8 && shown.ends_with('…') == (text.len() > TEXT_MAX));
        }
        let short = MessageText::of(b" {\"a\":1}\n");
        assert_eq!(short.shown(&mut masking), r#"{"a":1}"#);
    }
}
