//! The form of a packed fuzz corpus, `tests/fuzz/corpus/TARGET.pack`.
//!
//! Each line is one input, written as in a byte string literal of Rust (`\n`, `\r`, `\t`, `\\`, `\x00` to `\xff`), except
//! that quotation marks are not escaped. The lines are sorted and differ, so a new input is one new line in a diff.

use std::collections::BTreeSet;

/// Returns the inputs of a packed corpus in the order of its lines. The error is the number of the first invalid line,
/// counted from 1.
pub(crate) fn unpack(packed: &str) -> Result<Vec<Vec<u8>>, usize> {
    packed.lines().enumerate().map(|(index, line)| unescape(line).ok_or(index + 1)).collect()
}

/// Returns the packed corpus of `inputs`. Equal inputs become one line.
pub(crate) fn pack(inputs: &[Vec<u8>]) -> String {
    let lines: BTreeSet<String> = inputs.iter().map(|input| escape(input)).collect();
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

fn escape(input: &[u8]) -> String {
    let mut line = String::new();
    for (index, byte) in input.iter().enumerate() {
        match byte {
            b'"' | b'\'' => line.push(char::from(*byte)),
            // Editors remove spaces from the end of a line.
            b' ' if index + 1 == input.len() => line.push_str("\\x20"),
            byte => line.extend(byte.escape_ascii().map(char::from)),
        }
    }
    line
}

fn unescape(line: &str) -> Option<Vec<u8>> {
    let mut bytes = line.bytes();
    let mut input = Vec::new();
    while let Some(byte) = bytes.next() {
        input.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'\\' => b'\\',
                b'x' => hexadecimal(bytes.next()?)? * 16 + hexadecimal(bytes.next()?)?,
                _ => return None,
            },
            b' '..=b'~' => byte,
            _ => return None,
        });
    }
    Some(input)
}

fn hexadecimal(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}
