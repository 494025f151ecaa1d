//! Control characters in strings of JSON. RFC 8259 §7 requires escapes for them; hand-written serialisers copy tabs and
//! line ends unchanged, and strict readers refuse the whole message.

use super::json;
use super::unicode::{ReadablePiece, TextEnd};

/// Number of bytes that are searched together for control characters.
const BLOCK: usize = 64;

/// Replaces control characters in the strings of a JSON text by escapes. The text may come in pieces.
#[derive(Debug, Clone, Default)]
pub struct ControlEscapes {
    in_string: bool,
    /// Whether the last piece ended with the backslash of an escape.
    escaped: bool,
    /// A line end in an open string at the end of the last piece. If the text ends here, this is the end of the line
    /// and not a part of the string.
    line_end: Vec<u8>,
    is_changed: bool,
}

impl ControlEscapes {
    /// Handles the next piece of the text. At most two bytes are held back until the next piece.
    pub fn feed(&mut self, piece: &[u8], end: TextEnd) -> ReadablePiece {
        let held = std::mem::take(&mut self.line_end);
        let joined = (!held.is_empty()).then(|| [&held, piece].concat());
        let text = joined.as_deref().unwrap_or(piece);
        let (line, line_end) = text.split_at(without_line_end(text).len());
        let escaped = self.escape(line);
        // Only the next piece shows whether a line end belongs to the string or ends the line.
        let ready = if self.in_string && end == TextEnd::Open {
            self.line_end = line_end.to_vec();
            line.len()
        } else {
            text.len()
        };
        match escaped {
            Some(mut escaped) => {
                self.is_changed = true;
                escaped.extend_from_slice(&text[line.len()..ready]);
                ReadablePiece::Instead(escaped)
            }
            None if joined.is_some() => ReadablePiece::Instead(text[..ready].to_vec()),
            None => ReadablePiece::AsItIs(ready),
        }
    }

    /// Whether a control character had to be escaped.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Whether no bytes are held back.
    pub fn is_empty(&self) -> bool {
        self.line_end.is_empty()
    }

    /// Returns the text with escapes; `None` if its strings have no control characters.
    fn escape(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let (mut at, mut copied) = (0, 0);
        if std::mem::take(&mut self.escaped) {
            at = text.len().min(1);
            self.escaped = text.is_empty();
        }
        while at < text.len() {
            if !self.in_string {
                let Some(quote) = memchr::memchr(b'"', &text[at..]) else { break };
                at += quote + 1;
                self.in_string = true;
                continue;
            }
            let Some(end) = json::end_of_plain(&text[at..]) else { break };
            at += end;
            match text[at] {
                b'"' => self.in_string = false,
                b'\\' => {
                    self.escaped = at + 1 == text.len();
                    at += 1;
                }
                control => {
                    out.extend_from_slice(&text[copied..at]);
                    push_escape(control, &mut out);
                    copied = at + 1;
                }
            }
            at += 1;
        }
        (copied > 0).then(|| {
            out.extend_from_slice(&text[copied..]);
            out
        })
    }
}

/// Returns the whole text with escapes; `None` if its strings have no control characters.
pub fn escaped(text: &[u8]) -> Option<Vec<u8>> {
    if !mentions_control(text) {
        return None;
    }
    match ControlEscapes::default().feed(text, TextEnd::Here) {
        ReadablePiece::Instead(escaped) => Some(escaped),
        ReadablePiece::AsItIs(_) => None,
    }
}

fn without_line_end(text: &[u8]) -> &[u8] {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Whether a text has a control character other than its line end. Nearly no message has one, so this check is fast.
fn mentions_control(text: &[u8]) -> bool {
    without_line_end(text)
        .chunks(BLOCK)
        // There is no early exit within a block, so that the compiler can compare many bytes at a time.
        .any(|block| block.iter().fold(false, |found, byte| found | (*byte < b' ')))
}

fn push_escape(control: u8, out: &mut Vec<u8>) {
    let short = match control {
        b'\t' => b't',
        b'\n' => b'n',
        b'\r' => b'r',
        0x08 => b'b',
        0x0c => b'f',
        _ => return out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(escaped(text.as_bytes()).is_some(), text != expected);
        assert_eq!(escaped(expected.as_bytes()), None);
        for cut in 0..=text.len() {
            let mut escapes = ControlEscapes::default();
            let mut out = Vec::new();
            let pieces = [(&text[..cut], TextEnd::Open), (&text[cut..], TextEnd::Here)];
            for (piece, end) in pieces {
                match escapes.feed(piece.as_bytes(), end) {
                    ReadablePiece::AsItIs(length) => out.extend(&piece.as_bytes()[..length]),
                    ReadablePiece::Instead(text) => out.extend(text),
                }
            }
            assert_eq!(String::from_utf8(out).unwrap(), expected, "cut at {cut}");
            assert_eq!((escapes.is_changed(), escapes.is_empty()), (text != expected, true));
        }
    }

    #[test]
    fn control_characters_in_strings_become_escapes() {
        check("{\"a\":\"x\ty\u{1}\u{8}\u{c}\"}", r#"{"a":"x\ty\u0001\b\f"}"#);
        check("[\"a\r\nb\n\"]\r\n", "[\"a\\r\\nb\\n\"]\r\n");
        check("{\"a\\\"\t\":1,\"\u{1f}\u{7f}\":2}", "{\"a\\\"\\t\":1,\"\\u001f\u{7f}\":2}");
        check("[\"\\\\\t\",\"\\\\\"\t]", "[\"\\\\\\t\",\"\\\\\"\t]");
    }

    #[test]
    fn what_is_outside_of_strings_or_behind_a_backslash_stays() {
        for text in [
            "{\t\"a\":\r\n1 }\r\n",
            "{\"a\":\"\\\t\\\n\"}",
            "[]\n",
            "\t",
            "",
            "{\"a\":\"\\n\"}\n",
            "[\"a\n",
        ] {
            check(text, text);
        }
    }
}
