//! Repairs text that strict readers refuse: invalid UTF-8, and escapes of lone surrogates in JSON. Each becomes one
//! U+FFFD, as in readers that accept them. Control characters in strings become escapes.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::control_characters::{self, ControlEscapes};
use super::json;

/// U+FEFF in UTF-8. Some Windows runtimes write it at the beginning of a stream or of each message.
pub const BOM: &[u8] = b"\xEF\xBB\xBF";

/// U+FFFD in UTF-8.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// The escape of U+FFFD, which has the same length as the escape of a surrogate.
const ESCAPED_REPLACEMENT: &[u8] = b"\\ufffd";

/// The beginning of an escape such as `\u0041`.
static UNICODE_ESCAPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\\u"));

/// The length of an escape such as `\u0041`, in bytes.
const ESCAPE_LEN: usize = 6;

/// Limit of the bytes that may have to wait for more text: a pair of escapes without its last byte. A UTF-8 sequence is
/// shorter.
const UNFINISHED_MAX: usize = 2 * ESCAPE_LEN - 1;

/// Whether every reader can read the characters of a JSON text.
pub fn is_readable(text: &[u8]) -> bool {
    is_unicode(text) && control_characters::escaped(text).is_none()
}

fn is_unicode(text: &[u8]) -> bool {
    is_utf8(text) && !mentions_surrogate(text)
}

/// Whether a text is UTF-8. Nearly all texts are ASCII, which can be checked many bytes at a time.
pub fn is_utf8(text: &[u8]) -> bool {
    text.is_ascii() || std::str::from_utf8(text).is_ok()
}

/// Whether a text contains anything that looks like the escape of a surrogate, paired or not.
fn mentions_surrogate(text: &[u8]) -> bool {
    // Most short texts have no escape at all, and a search for one byte costs less.
    let Some(first) = memchr::memchr(b'\\', text) else { return false };
    let text = &text[first..];
    UNICODE_ESCAPE.find_iter(text).any(|at| {
        let digits = text.get(at + 2..at + 4);
        // The digits may be missing because the piece ends here. Then the answer has to be yes.
        digits.is_none_or(|digits| is_surrogate_start(digits[0], digits[1]))
    })
}

fn is_surrogate_start(first: u8, second: u8) -> bool {
    matches!(first, b'd' | b'D') && matches!(second, b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F')
}

/// Returns the text in a form that every reader can parse; `None` if the text is already in such a form.
pub fn readable(text: &[u8]) -> Option<Vec<u8>> {
    if is_readable(text) {
        return None;
    }
    let escaped = control_characters::escaped(text);
    let text = escaped.as_deref().unwrap_or(text);
    if is_unicode(text) {
        return escaped;
    }
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    let (_, is_changed) = mend(text, TextEnd::Here, &mut out);
    if is_changed { Some(out) } else { escaped }
}

/// Whether the characters of an incomplete text are readable so far.
pub fn is_readable_so_far(text: &[u8]) -> bool {
    control_characters::escaped(text).is_none()
        && (is_unicode(text) || !mend(text, TextEnd::Open, &mut Vec::new()).1)
}

/// Whether a text continues after this piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEnd {
    /// The text ends with this piece.
    Here,
    /// More text may follow.
    Open,
}

/// Repairs a text that arrives in pieces. At most 13 bytes are held back until the next piece.
#[derive(Debug, Clone, Default)]
pub struct ReadablePieces {
    /// The first bytes of a character or escape that is not complete yet.
    held: Vec<u8>,
    controls: ControlEscapes,
    is_changed: bool,
}

/// A piece of text in a form that every reader can read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadablePiece {
    /// The unchanged piece, up to this length. The rest is held back.
    AsItIs(usize),
    /// A text that replaces the piece.
    Instead(Vec<u8>),
}

impl ReadablePieces {
    /// Handles the next piece of the text.
    pub fn feed(&mut self, piece: &[u8], end: TextEnd) -> ReadablePiece {
        let escaped = match self.controls.feed(piece, end) {
            ReadablePiece::AsItIs(length) => return self.feed_escaped(&piece[..length], end),
            ReadablePiece::Instead(escaped) => escaped,
        };
        match self.feed_escaped(&escaped, end) {
            ReadablePiece::AsItIs(length) => ReadablePiece::Instead(escaped[..length].to_vec()),
            instead => instead,
        }
    }

    fn feed_escaped(&mut self, piece: &[u8], end: TextEnd) -> ReadablePiece {
        if self.held.is_empty() {
            let ready = readable_length(piece, end);
            if let Some(ready) = ready {
                self.held.extend_from_slice(&piece[ready..]);
                return ReadablePiece::AsItIs(ready);
            }
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(piece);
        if let Some(ready) = readable_length(&text, end) {
            self.held = text.split_off(ready);
            return ReadablePiece::Instead(text);
        }
        let mut out = Vec::with_capacity(text.len() + text.len() / 8);
        let (ready, is_changed) = mend(&text, end, &mut out);
        self.is_changed |= is_changed;
        self.held = text.split_off(ready);
        ReadablePiece::Instead(out)
    }

    /// Whether a piece had to be changed.
    pub fn is_changed(&self) -> bool {
        self.is_changed || self.controls.is_changed()
    }

    /// Whether no part of the text is held back.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.controls.is_empty()
    }
}

/// Returns the length of the text that is valid and does not depend on the text that follows; `None` if the text must
/// be examined character by character.
fn readable_length(text: &[u8], end: TextEnd) -> Option<usize> {
    // An escape, or a pair of escapes, may be incomplete at the end of the piece.
    let tail = text.len().saturating_sub(UNFINISHED_MAX);
    if end == TextEnd::Open && memchr::memchr(b'\\', &text[tail..]).is_some() {
        return None;
    }
    let ready = match std::str::from_utf8(text) {
        Ok(_) => text.len(),
        Err(fault) if end == TextEnd::Open && fault.error_len().is_none() => fault.valid_up_to(),
        Err(_) => return None,
    };
    (!mentions_surrogate(&text[..ready])).then_some(ready)
}

/// What begins at a position of a text.
enum TextUnit {
    /// A part of this length that stays unchanged.
    Readable(usize),
    /// A part of this length, and the text that replaces it.
    Unreadable(usize, &'static [u8]),
    /// A part that is not complete yet.
    Unfinished,
}

/// Appends the readable form of `text` to `out`. Returns the length of the text that was read, and whether anything was
/// replaced. The length is shorter than `text` only if more text may follow.
fn mend(text: &[u8], end: TextEnd, out: &mut Vec<u8>) -> (usize, bool) {
    let (mut at, mut copied) = (0, 0);
    let mut is_changed = false;
    while let Some(offset) = json::escape_or_high_byte(&text[at..]) {
        at += offset;
        let found = match text[at] {
            b'\\' => escape(&text[at..], end),
            _ => character(&text[at..], end),
        };
        match found {
            TextUnit::Readable(length) => at += length,
            TextUnit::Unreadable(length, instead) => {
                out.extend_from_slice(&text[copied..at]);
                out.extend_from_slice(instead);
                at += length;
                copied = at;
                is_changed = true;
            }
            TextUnit::Unfinished => {
                out.extend_from_slice(&text[copied..at]);
                return (at, is_changed);
            }
        }
    }
    out.extend_from_slice(&text[copied..]);
    (text.len(), is_changed)
}

/// Returns the character at the start of a text, which begins with a non-ASCII byte.
fn character(text: &[u8], end: TextEnd) -> TextUnit {
    let window = &text[..text.len().min(4)];
    match std::str::from_utf8(window) {
        Err(fault) if fault.valid_up_to() == 0 => match fault.error_len() {
            Some(length) => TextUnit::Unreadable(length, REPLACEMENT),
            None if end == TextEnd::Open => TextUnit::Unfinished,
            None => TextUnit::Unreadable(window.len(), REPLACEMENT),
        },
        // The first byte of a character tells its length.
        _ => TextUnit::Readable(window[0].leading_ones() as usize),
    }
}

/// Returns the escape at the start of a text, which begins with a backslash.
fn escape(text: &[u8], end: TextEnd) -> TextUnit {
    match text.get(1) {
        None if end == TextEnd::Open => return TextUnit::Unfinished,
        Some(b'u') => {}
        Some(next) if next.is_ascii() => return TextUnit::Readable(2),
        _ => return TextUnit::Readable(1),
    }
    let has_digits = |place: Range<usize>| {
        text.get(place.start..place.end.min(text.len()))
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if text.len() < ESCAPE_LEN {
        let may_go_on = end == TextEnd::Open && has_digits(2..ESCAPE_LEN);
        return if may_go_on { TextUnit::Unfinished } else { TextUnit::Readable(2) };
    }
    // An invalid escape stays unchanged, because only characters are repaired here, and not the syntax.
    if !has_digits(2..ESCAPE_LEN) {
        return TextUnit::Readable(2);
    }
    if !is_surrogate_start(text[2], text[3]) {
        return TextUnit::Readable(ESCAPE_LEN);
    }
    let is_low = |first: u8| matches!(first, b'c'..=b'f' | b'C'..=b'F');
    if !is_low(text[3]) {
        // An escape of the low surrogate may follow.
        let next = &text[ESCAPE_LEN..text.len().min(2 * ESCAPE_LEN)];
        let fits = |(place, byte): (usize, &u8)| match place {
            0 => *byte == b'\\',
            1 => *byte == b'u',
            2 => matches!(byte, b'd' | b'D'),
            3 => is_low(*byte),
            _ => byte.is_ascii_hexdigit(),
        };
        if next.iter().enumerate().all(fits) {
            if next.len() == ESCAPE_LEN {
                return TextUnit::Readable(2 * ESCAPE_LEN);
            }
            if end == TextEnd::Open {
                return TextUnit::Unfinished;
            }
        }
    }
    TextUnit::Unreadable(ESCAPE_LEN, ESCAPED_REPLACEMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &[u8], expected: &[u8]) {
        let found = readable(text);
        assert_eq!(found.as_deref().unwrap_or(text), expected);
        assert_eq!(found.is_some(), text != expected);
        assert!(is_readable(expected) || readable(expected).is_none());
        for cut in 0..=text.len() {
            let mut pieces = ReadablePieces::default();
            let mut out = Vec::new();
            for (piece, end) in [(&text[..cut], TextEnd::Open), (&text[cut..], TextEnd::Here)] {
                match pieces.feed(piece, end) {
                    ReadablePiece::AsItIs(length) => out.extend_from_slice(&piece[..length]),
                    ReadablePiece::Instead(text) => out.extend(text),
                }
            }
            assert_eq!(out, expected, "{cut}");
            assert!(pieces.is_empty());
            assert_eq!(pieces.is_changed(), text != expected);
        }
    }

    #[test]
    fn lone_surrogates_become_one_replacement_each() {
        check(br#""a\ud83d""#, br#""a\ufffd""#);
        check(br#""\uD83D\uDE00""#, br#""\uD83D\uDE00""#);
        check(br#""\ude00\ud83d""#, br#""\ufffd\ufffd""#);
        check(br#""\ud83d\ud83d\ude00""#, br#""\ufffd\ud83d\ude00""#);
        check(br#""\\ud83d \\\ud83d""#, br#""\\ud83d \\\ufffd""#);
        check(br#""\ud83d\u0041 \ud83d\n \ud83d\""#, br#""\ufffd\u0041 \ufffd\n \ufffd\""#);
        check(br#""\ud83 \ud83g \uD7FF \ue000""#, br#""\ud83 \ud83g \uD7FF \ue000""#);
        check(br"\ud83d\ude0", br"\ufffd\ude0");
        check(br"\ud83", br"\ud83");
    }

    #[test]
    fn control_characters_in_strings_become_escapes() {
        check(b"{\t\"a\":\"\tb\x01\"}\r\n", b"{\t\"a\":\"\\tb\\u0001\"}\r\n");
        check(b"\"\\ud83d\t\xff\x0b\xe4\"", "\"\\ufffd\\t\u{fffd}\\u000b\u{fffd}\"".as_bytes());
    }

    #[test]
    fn bytes_that_are_no_utf_8_become_replacements() {
        for text in [
            &b"\xb0\xa1\xb3\xaa"[..],
            b"caf\xe9 \x82",
            b"\xe4\xb8 x \xf0\x9f\x98\x80 \xf0\x9f\x98",
            b"\xed\xa0\xbd \xc0\x80 \xff\xfe",
            "\u{e9}\u{4e2d}\u{1f600}".as_bytes(),
        ] {
            check(text, String::from_utf8_lossy(text).as_bytes());
        }
    }
}
