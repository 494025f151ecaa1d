//! Reads JSON text in place: finds where members and elements begin and end, and nothing more.
//!
//! The reader is intentionally lenient, because a proxy has to find the `id` of a message that contains a bare `NaN`,
//! bytes that are not UTF-8, or 200,000 nested arrays. No function here recurses, copies a value or checks a value.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use memchr::memchr2;
use serde::Deserializer;
use serde::de::{Error, Visitor};

// Milepost has its own JSON scanner because it must find the id of every message, whatever JSON the message contains,
// and must not copy a megabyte to do so. Typed readers reject the whole of such a message. Where values themselves are
// needed, `serde_json` reads them. Large answers are recognised by their beginning and their end.
/// Whether a byte separates JSON tokens (RFC 8259 §2).
pub const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Returns the first position at or after `at` that is not white space.
pub fn skip_space(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && is_space(text[at]) {
        at += 1;
    }
    at
}

/// Number of eight-byte words in which the end of a string is searched before [`memchr2`] is called. Nearly all strings
/// in messages end within these words, and the call costs more than searching them.
const SHORT_WORDS: usize = 8;

/// Returns the position of the first quote or backslash in `text`.
pub(crate) fn quote_or_backslash(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    let short = &words[..words.len().min(SHORT_WORDS)];
    for (place, word) in short.iter().enumerate() {
        // In little-endian order the first byte is the lowest. `zero_byte` may be wrong above the lowest bit that it
        // sets, so only the lowest bit is used.
        let word = u64::from_le_bytes(*word);
        let found = zero_byte(word ^ every(b'"')) | zero_byte(word ^ every(b'\\'));
        if found != 0 {
            return Some(place * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let from = short.len() * 8;
    memchr2(b'"', b'\\', &text[from..]).map(|found| from + found)
}

/// Returns the position of the first quote, backslash or control character in `text`.
pub(crate) fn end_of_plain(text: &[u8]) -> Option<usize> {
    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\' | ..b' ');
    let (words, rest) = text.as_chunks::<8>();
    for (place, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let control = word.wrapping_sub(every(b' ')) & !word & every(0x80);
        let found = zero_byte(word ^ every(b'"')) | zero_byte(word ^ every(b'\\')) | control;
        if found != 0 {
            return Some(place * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(is_end).map(|found| words.len() * 8 + found)
}

/// Returns the position of the first backslash or non-ASCII byte in `text`.
pub(crate) fn escape_or_high_byte(text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (place, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zero_byte(word ^ every(b'\\')) | (word & every(0x80));
        if found != 0 {
            return Some(place * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let is_found = |byte: &u8| *byte == b'\\' || !byte.is_ascii();
    rest.iter().position(is_found).map(|found| words.len() * 8 + found)
}

/// Returns a word that consists of eight equal bytes.
const fn every(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Returns a word in which the highest bit of the lowest zero byte is set. Bits of higher bytes may be set too. Zero if
/// no byte is zero.
const fn zero_byte(word: u64) -> u64 {
    word.wrapping_sub(every(1)) & !word & every(0x80)
}

/// Length in bytes of the beginning of a string that is searched without a call. Nearly all strings of an envelope are
/// shorter, and the call of a loop costs twice as much as these words.
const SHORT_STRING: usize = 24;

/// Returns the position after the string whose opening quote is at `at`; `None` if the string is not closed.
fn skip_string(text: &[u8], at: usize) -> Option<usize> {
    let start = at + 1;
    let mut from = start;
    while from < start + SHORT_STRING
        && let Some(word) = text.get(from..).and_then(<[u8]>::first_chunk)
    {
        let word = u64::from_le_bytes(*word);
        let quotes = zero_byte(word ^ every(b'"'));
        let found = quotes | zero_byte(word ^ every(b'\\'));
        if found == 0 {
            from += 8;
            continue;
        }
        from += found.trailing_zeros() as usize / 8;
        // Only the lowest bit of `found` is certain. If `quotes` has the bit, it is also the lowest bit of `quotes`.
        if quotes & found & found.wrapping_neg() != 0 {
            return Some(from + 1);
        }
        break;
    }
    skip_rest_of_string(text, from)
}

/// Returns the position after a string that continues at `at`.
// Not inlined: the end of each short string would then pay for the registers of this loop.
#[inline(never)]
fn skip_rest_of_string(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = at + quote_or_backslash(text.get(at..)?)?;
        if text[found] == b'"' {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// Returns the position after the value that begins at `at`; `None` if the text there is incomplete or is not a value.
///
/// Scalars are not checked: `NaN` and `1e400` are values here.
pub fn skip_value(text: &[u8], at: usize) -> Option<usize> {
    match *text.get(at)? {
        b'"' => skip_string(text, at),
        b'{' | b'[' => {
            let mut depth = 0_usize;
            let mut at = at;
            loop {
                match *text.get(at)? {
                    b'"' => {
                        at = skip_string(text, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        b'}' | b']' | b',' | b':' => None,
        _ => {
            let end = text[at..]
                .iter()
                .position(|&byte| is_space(byte) || matches!(byte, b',' | b'}' | b']' | b':'))
                .map_or(text.len(), |length| at + length);
            Some(end)
        }
    }
}

/// Reads backwards from `close`, the closing brace of an object, to the last value of the object that begins before
/// `floor`. Returns the position after that value; `None` if there is none.
pub fn skip_back(text: &[u8], floor: usize, close: usize) -> Option<usize> {
    // A quote after an odd number of backslashes is a part of a string.
    let is_escaped = |at: usize| {
        let slashes = text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
        slashes % 2 == 1
    };
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut end = close;
    for at in (floor..close).rev() {
        match text[at] {
            b'"' if !is_escaped(at) => in_string = !in_string,
            _ if in_string => {}
            b'}' | b']' => depth += 1,
            b'{' | b'[' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => end = at,
            _ => {}
        }
    }
    while end > floor && is_space(text[end - 1]) {
        end -= 1;
    }
    (depth > 0).then_some(end)
}

/// One member of an object, as ranges of the text that contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The range of the key, including its quotes.
    pub key: Range<usize>,
    /// The range of the value.
    pub value: Range<usize>,
}

/// An iterator over the members of the object at the start of a text, in order, including repeated members.
///
/// It ends early if the text is not a valid object. Then [`Members::end`] stays `None`.
#[derive(Debug)]
pub struct Members<'a> {
    text: &'a [u8],
    at: usize,
    end: Option<usize>,
    cut_off: Option<(Range<usize>, usize)>,
    done: bool,
}

impl<'a> Members<'a> {
    /// Returns an iterator that starts at the first byte of `text` that is not white space.
    pub fn new(text: &'a [u8]) -> Self {
        let at = skip_space(text, 0);
        let is_object = text.get(at) == Some(&b'{');
        Self { text, at: at + 1, end: None, cut_off: None, done: !is_object }
    }

    /// Returns an iterator that starts at `at`, after a member of the outermost object.
    pub fn after(text: &'a [u8], at: usize) -> Self {
        Self { text, at, end: None, cut_off: None, done: false }
    }

    /// Returns the position after the closing brace, once the iterator has reached the brace.
    pub fn end(&self) -> Option<usize> {
        self.end
    }

    /// Returns the key of the member whose value is incomplete, and the position of this value.
    pub fn cut_off(&self) -> Option<(Range<usize>, usize)> {
        self.cut_off.clone()
    }

    fn step(&mut self) -> Option<Member> {
        let mut at = skip_space(self.text, self.at);
        if self.text.get(at) == Some(&b',') {
            at = skip_space(self.text, at + 1);
        }
        match self.text.get(at)? {
            b'}' => {
                self.end = Some(at + 1);
                return None;
            }
            b'"' => {}
            _ => return None,
        }
        let key = at..skip_string(self.text, at)?;
        at = skip_space(self.text, key.end);
        if self.text.get(at) != Some(&b':') {
            return None;
        }
        at = skip_space(self.text, at + 1);
        let Some(end) = skip_value(self.text, at) else {
            self.cut_off = Some((key, at)).filter(|_| at < self.text.len());
            return None;
        };
        let value = at..end;
        self.at = value.end;
        Some(Member { key, value })
    }
}

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        if self.done {
            return None;
        }
        let member = self.step();
        self.done = member.is_none();
        member
    }
}

/// Returns the range of the member whose value is at `value`, including the comma between the member and a neighbour.
/// If this range is removed, the object has one member fewer and is otherwise unchanged. `None` if no member has this
/// value.
pub fn member_around(text: &[u8], value: Range<usize>) -> Option<Range<usize>> {
    let back = |end: usize| {
        let space = text.get(..end)?.iter().rev().take_while(|byte| is_space(**byte)).count();
        Some(end - space)
    };
    let before = |end: usize, byte: u8| {
        let at = back(end)?.checked_sub(1)?;
        (text[at] == byte).then_some(at)
    };
    let close = before(before(value.start, b':')?, b'"')?;
    let key = memchr::memrchr(b'"', &text[..close])?;
    let behind = skip_space(text, value.end);
    if text.get(behind) == Some(&b',') {
        return Some(key..skip_space(text, behind + 1));
    }
    Some(before(key, b',').unwrap_or(key)..value.end)
}

/// Returns the elements of the array at the start of a text, and the position after the array; `None` if the array is
/// incomplete.
pub fn elements(text: &[u8]) -> Option<(Vec<Range<usize>>, usize)> {
    let mut at = skip_space(text, 0);
    if text.get(at) != Some(&b'[') {
        return None;
    }
    let mut found = Vec::new();
    at += 1;
    loop {
        at = skip_space(text, at);
        match text.get(at)? {
            b']' => return Some((found, at + 1)),
            b',' => at += 1,
            _ => {
                let end = skip_value(text, at)?;
                found.push(at..end);
                at = end;
            }
        }
    }
}

/// Whether a quoted key spells `name`, possibly with escapes.
pub fn key_is(key: &[u8], name: &str) -> bool {
    let inner = within_quotes(key);
    inner == name.as_bytes()
        || has_backslash(inner) && unescape(key).is_some_and(|key| *key == *name.as_bytes())
}

/// The text between the quotes of a key.
pub(crate) fn within_quotes(key: &[u8]) -> &[u8] {
    key.get(1..key.len().saturating_sub(1)).unwrap_or_default()
}

/// Whether a text contains a backslash. Keys and other short texts are read in words, where [`slice::contains`] reads
/// each byte.
pub(crate) fn has_backslash(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    let is_in = |word: &[u8; 8]| zero_byte(u64::from_le_bytes(*word) ^ every(b'\\')) != 0;
    words.iter().any(is_in) || rest.contains(&b'\\')
}

/// Returns the last value of the member `name` of the object `text`, because JSON readers use the last member if a key
/// is repeated.
pub fn member(text: &Bytes, name: &str) -> Option<Bytes> {
    let found = Members::new(text).filter(|member| key_is(&text[member.key.clone()], name)).last();
    found.map(|member| text.slice(member.value))
}

/// Returns the last values of several members of the object `text`. Gives the same result as [`member`] for each name,
/// in one pass.
pub fn members<const N: usize>(text: &Bytes, names: [&str; N]) -> [Option<Bytes>; N] {
    let mut found = [const { None }; N];
    for member in Members::new(text) {
        let key = &text[member.key];
        // Escapes are looked for only in a key that is no name as it stands.
        let plain = within_quotes(key);
        let mut place = names.iter().position(|name| name.as_bytes() == plain);
        if place.is_none() && has_backslash(plain) {
            place = names.iter().position(|name| key_is(key, name));
        }
        if let Some(place) = place {
            found[place] = Some(text.slice(member.value));
        }
    }
    found
}

/// Returns the bytes of a JSON string. A lone surrogate becomes its three-byte form. `None` if `text` is not a string.
pub fn unescape(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if !has_backslash(inner) {
        return Some(Cow::Borrowed(inner));
    }
    struct Raw;
    impl<'de> Visitor<'de> for Raw {
        type Value = Vec<u8>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string")
        }
        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }
    }
    // serde_json reads a string as bytes without requiring UTF-8 or paired surrogates.
    let mut reader = serde_json::Deserializer::from_slice(text);
    reader.deserialize_bytes(Raw).ok().map(Cow::Owned)
}

/// Returns the text of a JSON string, with U+FFFD for everything that is not Unicode. `None` if `text` is not a string.
pub fn decode_str(text: &[u8]) -> Option<Cow<'_, str>> {
    Some(match unescape(text)? {
        Cow::Borrowed(bytes) => lossy(bytes),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    })
}

/// Returns the text of `bytes`, with U+FFFD for everything that is not Unicode. Nearly all text is Unicode, and
/// checking that first is several times faster than [`String::from_utf8_lossy`].
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Returns `words` as a JSON string.
pub fn quote(words: &str) -> Bytes {
    // A `str` always has a JSON form.
    serde_json::to_vec(words).map_or_else(|_| Bytes::from_static(b"\"\""), Bytes::from)
}

/// Returns the value of a JSON number; `None` if `text` is not a JSON number, or its value is not finite.
pub fn number(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    // Rust's parser accepts more than JSON allows: `inf`, `.5`, `1.`.
    split_number(text)?;
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Returns the sign, the digits before and after the point, and the exponent of a JSON number (RFC 8259 §6); `None` if
/// `text` is not exactly one number.
fn split_number(text: &str) -> Option<(bool, &str, &str, &str)> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    let fine = is_digits(whole) && is_digits(fraction) && is_digits(unsigned) && !leading_zero;
    fine.then_some((negative, whole, fraction, exponent))
}

/// Returns the sign, the significant digits without leading or trailing zeros, and the exponent of ten of a JSON
/// number. The number zero has no digits. `None` if `text` is not exactly one JSON number.
pub fn number_parts(text: &str) -> Option<(bool, String, i64)> {
    let (negative, whole, fraction, exponent) = split_number(text)?;
    let all = [whole, fraction].concat();
    let significant = all.trim_end_matches('0');
    let shift = (all.len() - significant.len()) as i64 - fraction.len() as i64;
    // An exponent that does not fit into an `i64` only has to be larger in magnitude than the exponents of all other
    // numbers.
    let beyond = if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
    let power = exponent.parse::<i64>().unwrap_or(beyond);
    Some((negative, significant.trim_start_matches('0').to_owned(), power.saturating_add(shift)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(&str, &str)> {
        Members::new(text.as_bytes()).map(|m| (&text[m.key], &text[m.value])).collect()
    }

    #[test]
    fn members_are_found_whatever_their_values_are() {
        assert_eq!(
            pairs(r#" { "a" : NaN , "b":[1,{"c":"}"}],"d":"\"}" ,"e":-1e400} tail"#),
            [
                (r#""a""#, "NaN"),
                (r#""b""#, r#"[1,{"c":"}"}]"#),
                (r#""d""#, r#""\"}""#),
                (r#""e""#, "-1e400")
            ]
        );
        assert_eq!(pairs("{}"), []);
        assert_eq!(pairs(r#"{"a":1,"#), [(r#""a""#, "1")]);
        assert_eq!(pairs(r#"{'a':1}"#), []);
        assert_eq!(pairs("[1]"), []);
    }

    #[test]
    fn the_end_of_a_string_is_found_at_every_length() {
        for length in 0..100 {
            let text = "é~!]\u{7f}a".chars().cycle().take(length).collect::<String>();
            assert_eq!(quote_or_backslash(text.as_bytes()), None);
            assert_eq!(end_of_plain(text.as_bytes()), None);
            for end in ["\"", "\\", "\"\\", "\\\"..........."] {
                let whole = text.clone() + end;
                assert_eq!(quote_or_backslash(whole.as_bytes()), Some(text.len()), "{whole}");
                assert_eq!(end_of_plain(whole.as_bytes()), Some(text.len()), "{whole}");
            }
            for control in 0..b' ' {
                let whole = format!("{text}{}\"", char::from(control));
                assert_eq!(end_of_plain(whole.as_bytes()), Some(text.len()), "{whole:?}");
            }
        }
    }

    #[test]
    fn strings_end_at_the_first_quote_that_is_not_escaped() {
        for length in 0..100 {
            let text = "é~!]\u{7f}a".chars().cycle().take(length).collect::<String>();
            for inner in ["", "\\\\", "\\\"", "\\\"\\\\\\\"", "\\n#", "]\\\\"] {
                for behind in ["", "\"", ",\"b\":1}", "\\\"\\\"........................"] {
                    let string = format!("\"{text}{inner}{text}\"");
                    let whole = format!("{string}{behind}");
                    assert_eq!(skip_value(whole.as_bytes(), 0), Some(string.len()), "{whole}");
                    let open = &string[..string.len() - 1];
                    assert_eq!(skip_value(open.as_bytes(), 0), None, "{open}");
                }
            }
        }
    }

    #[test]
    fn backslashes_are_found_at_every_place() {
        for length in 0..40 {
            let mut text = vec![b'a'; length];
            assert!(!has_backslash(&text));
            for place in 0..length {
                text[place] = b'\\';
                assert!(has_backslash(&text), "{place} of {length}");
                text[place] = b']';
            }
        }
    }

    #[test]
    fn several_members_are_found_at_once() {
        let text = Bytes::from_static(br#"{"b":1,"a":2,"b":3,"x":{"c":4},"\u0064":5}"#);
        let names = ["a", "b", "c", "d"];
        assert_eq!(members(&text, names), names.map(|name| member(&text, name)));
        assert_eq!(members(&text, ["b", "d"]).map(Option::unwrap), ["3", "5"]);
        assert_eq!(members(&Bytes::new(), ["a"]), [None]);
    }

    #[test]
    fn nesting_is_a_counter_and_no_stack() {
        let depth = if cfg!(miri) { 1000 } else { 200_000 };
        let deep = format!(r#"{{"a":{}{},"b":1}}"#, "[".repeat(depth), "]".repeat(depth));
        assert_eq!(pairs(&deep)[1], (r#""b""#, "1"));
    }

    #[test]
    fn keys_are_compared_by_what_they_spell() {
        assert!(key_is(br#""progress\u0054oken""#, "progressToken"));
        assert!(key_is(br#""a\/b""#, "a/b"));
        assert!(!key_is(br#""Method""#, "method"));
    }

    #[test]
    fn only_json_numbers_are_numbers() {
        for good in ["0", "-0.0", "1E2", "12.50e-3", "9007199254740993"] {
            assert!(number(good.as_bytes()).is_some(), "{good}");
        }
        for bad in ["", "01", "1.", "+1", ".5", "NaN", "1e400", "-", "0x1", "inf", "1e", "1 "] {
            assert!(number(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn lone_surrogates_and_bad_utf8_are_read() {
        assert_eq!(unescape(br#""a\ud83d""#).unwrap().as_ref(), b"a\xed\xa0\xbd");
        assert!(decode_str(b"\"a\xff\"").unwrap().starts_with('a'));
        assert_eq!(decode_str(br#""a\u0062""#).unwrap(), "ab");
    }
}
