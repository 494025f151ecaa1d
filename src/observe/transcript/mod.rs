//! Conversations as text: one line for each message, event and verdict.
//!
//! ```text
//! # a remark
//! ! hold=0ms dialects=standard,log     settings, before the first message
//! ! left                               an event of the connection
//! > {...}     a client message; `>3` on its stream 3, `>-` on no stream
//! ^ {...}     a message that the server gets instead, or in addition
//! < {...}     a server message; `<70` on its stream 70, `<@3` on the stream 3 of the client
//! 2 text      a line of the server's standard error
//! = {...}     a message to the client; `=3` on its stream 3
//! x reason    a message of the server was withheld
//! e text      a line that is not a message was written to standard error
//! ~ summary   a call has ended
//! + 30ms      time passes
//! 2| > {...}  a line of the second filter of the conversation, which has its own time
//! ```
//! A message `"` repeats the message of the previous line with the same sign. Bytes that no line of
//! text can hold are written `\xFF`, as is a backslash before an `x`.

pub mod settings;
pub mod words;

use std::borrow::Cow;
use std::fmt::Write;

use crate::progress::Summary;
use crate::progress::clients::is_unprintable;

/// The mark of a line that repeats the message of the last line with the same sign.
pub const SAME: &str = "\"";

/// The error for a line that begins with another sign.
pub const EXPECTED: &str = "a line that begins with one of # ! > ^ < 2 = x e ~ + is expected";

/// One line that is neither a comment nor empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptLine<'a> {
    /// The number of the filter within the conversation.
    pub part: u64,
    /// The kind of the line.
    pub sign: u8,
    /// The stream that is named after the sign.
    pub at: LineStream,
    /// The text after the sign.
    pub text: &'a str,
}

/// The stream of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineStream {
    /// The only stream.
    Only,
    /// The stream with this number: of a client, or of the server.
    Stream(u64),
    /// The server's message came on the client's stream with this number.
    Client(u64),
    /// No stream.
    Nowhere,
}

impl<'a> TranscriptLine<'a> {
    /// Reads a line; `None` for a comment or an empty line.
    ///
    /// # Errors
    /// What is expected instead of the line.
    pub fn read(line: &'a str) -> Result<Option<Self>, String> {
        let (part, line) = match line.split_once("| ") {
            Some((part, line)) if part.bytes().all(|byte| byte.is_ascii_digit()) => {
                (part.parse().map_err(|_| "the number of a part is expected")?, line)
            }
            _ => (1, line),
        };
        let Some(sign) = line.bytes().next().filter(|sign| *sign != b'#') else { return Ok(None) };
        if !b"!>^<2=xe~+".contains(&sign) {
            return Err(EXPECTED.to_owned());
        }
        let rest = line.get(1..).unwrap_or_default();
        let (stream, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = |text: &str| {
            text.parse().map_err(|_| "a space or a number behind the sign is expected")
        };
        let at = match stream {
            "" => LineStream::Only,
            "-" => LineStream::Nowhere,
            _ => match stream.strip_prefix('@') {
                Some(client) => LineStream::Client(number(client)?),
                None => LineStream::Stream(number(stream)?),
            },
        };
        Ok(Some(Self { part, sign, at, text }))
    }
}

/// Returns bytes as the text of a line. Characters that move the cursor or hide other text are escaped, because people
/// read the file on terminals.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find(|c: char| is_unprintable(c) || c == '\\') {
            let (before, from) = rest.split_at(at);
            text.push_str(before);
            let strange = from.chars().next().unwrap_or_default();
            let after = from.get(strange.len_utf8()..).unwrap_or_default();
            if strange == '\\' && !after.starts_with('x') {
                text.push('\\');
            } else {
                hexadecimal(&mut text, strange.encode_utf8(&mut [0; 4]).as_bytes());
            }
            rest = after;
        }
        text.push_str(rest);
        hexadecimal(&mut text, chunk.invalid());
    }
    text
}

fn hexadecimal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02X}");
    }
}

/// Returns the bytes that the text of a line stands for.
///
/// # Errors
/// If `\x` is not followed by two hexadecimal digits.
pub fn unescape(text: &str) -> Result<Cow<'_, [u8]>, String> {
    let Some(first) = text.find("\\x") else { return Ok(Cow::Borrowed(text.as_bytes())) };
    let (plain, mut rest) = text.split_at(first);
    let mut bytes = plain.as_bytes().to_vec();
    while let Some(at) = rest.find("\\x") {
        let (before, escaped) = rest.split_at(at);
        bytes.extend_from_slice(before.as_bytes());
        let byte = escaped.get(2..4).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("two hexadecimal digits behind \\x are expected")?);
        rest = escaped.get(4..).unwrap_or_default();
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(Cow::Owned(bytes))
}

/// Returns the summary of a call, as its line in a transcript has it.
pub fn summary(call: &Summary) -> String {
    let account = &call.account;
    let repaired: Vec<String> =
        account.repaired.iter().map(|(repair, n)| format!("{} {n}", repair.name())).collect();
    let withheld: Vec<String> =
        account.withheld.iter().map(|(reason, n)| format!("{} {n}", reason.name())).collect();
    let overheard = match account.read_from_text {
        0 => String::new(),
        lines => format!(" overheard {lines}"),
    };
    format!(
        "{:?} in {}{overheard} out {} beats {} repaired [{}] withheld [{}]",
        call.outcome,
        account.received,
        account.sent,
        account.beats,
        repaired.join(", "),
        withheld.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).chain(*b"\\x41 \\n \\\\x \\").collect();
        assert_eq!(&*unescape(&escape(&all)).unwrap(), all);
        assert_eq!(escape(b"{\"a\":\"\\n\"}"), "{\"a\":\"\\n\"}");
        let turned = "a\u{1b}[2J\u{9b}1m\u{202e}b\u{2028}é";
        let shown = r"a\x1B[2J\xC2\x9B1m\xE2\x80\xAEb\xE2\x80\xA8é";
        assert_eq!(escape(turned.as_bytes()), shown);
        assert!(unescape("\\x4").is_err());
    }
}
