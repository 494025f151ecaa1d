//! Makes text from other programs safe for a terminal. JSON is treated too, because `curl` shows an answer unchanged.

use std::fmt::Write;

use serde::Serialize;

use crate::progress::clients::is_unprintable;

/// Returns a value as JSON on one line. Characters that move the cursor or hide other text are escaped, including C1
/// control characters, which JSON allows unescaped and which a tool's name may contain.
pub fn printable_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    if text.chars().any(is_unprintable) { printable(&text, TextForm::Json) } else { text }
}

/// The kind of text in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// Text for people.
    Plain,
    /// JSON, which must stay valid JSON.
    Json,
}

/// Escapes the characters of a line that move the cursor or hide other text.
pub fn printable(line: &str, form: TextForm) -> String {
    let mut out = String::with_capacity(line.len());
    for sign in line.chars() {
        if !is_unprintable(sign) {
            out.push(sign);
        } else if form == TextForm::Json {
            for unit in sign.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            for byte in sign.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(out, "\\x{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_or_hides_other_text() {
        let line = "a\u{1b}[2J\u{9b}1m\u{202e}b\tc\u{e0041}";
        let text = printable(line, TextForm::Plain);
        assert_eq!(text, r"a\x1B[2J\xC2\x9B1m\xE2\x80\xAEb\x09c\xF3\xA0\x81\x81");
        let json = printable(&format!("\"{line}\""), TextForm::Json);
        assert!(!json.chars().any(is_unprintable));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), line);
        assert_eq!(printable_json(&"a\u{9b}\u{80}b"), r#""a\u009b\u0080b""#);
        assert_eq!(printable_json(&"ä\t"), r#""ä\t""#);
    }
}
