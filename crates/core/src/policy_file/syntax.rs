//! Errors of TOML syntax, described as the mistake that the author made.

use super::diagnostics::ConfigError;

/// Quotes that text editors write in place of `"` and `'`.
const CURVED: [char; 6] = ['“', '”', '„', '‘', '’', '«'];

/// Rewrites an error in plain words if the parser's message does not name the mistake. The value is left out, because
/// it may be a secret.
pub(super) fn reword(text: &str, error: ConfigError) -> ConfigError {
    let ConfigError { at, what } = error;
    let rest = text.get(at..).unwrap_or_default();
    if what.starts_with("duplicate key") {
        return ConfigError { at, what: duplicate(text, at).unwrap_or(what) };
    }
    if let Some(curved) = rest.chars().next().filter(|sign| CURVED.contains(sign)) {
        return ConfigError {
            at,
            what: format!("a straight quote (\") is expected, not {curved}"),
        };
    }
    if what.starts_with("string values must be quoted") {
        let is_missing = rest.lines().next().is_none_or(|line| line.trim().is_empty());
        let is_in_list = || open_list(text.get(..at).unwrap_or(text)).is_some();
        let what = match is_missing {
            true => "a value is missing",
            false if is_in_list() => {
                "between two values of a list a comma is expected, and text must be in quotes: \"...\""
            }
            false => "text must be in quotes: \"...\"",
        };
        return ConfigError { at, what: what.to_owned() };
    }
    if what.contains("array")
        && let Some(at) = open_list(text.get(..at).unwrap_or(text))
        && begins_something_else(line_at(text, error.at))
    {
        return ConfigError { at, what: "this list has no end: `]` is missing".to_owned() };
    }
    ConfigError { at, what }
}

/// Returns the line that contains a position, from its start to its end.
fn line_at(text: &str, at: usize) -> &str {
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    text[start..].lines().next().unwrap_or_default()
}

/// Whether a line is a table header or a key with a value, and so not part of a list. Also true if there is no line.
fn begins_something_else(line: &str) -> bool {
    let line = line.trim_start();
    let is_key = line.split_once('=').is_some_and(|(key, _)| {
        key.trim().chars().all(|sign| sign.is_alphanumeric() || "._-".contains(sign))
    });
    line.is_empty() || line.starts_with('[') || is_key
}

/// Returns the message for a key that is set twice: the key, and the line where its table sets it first.
fn duplicate(text: &str, at: usize) -> Option<String> {
    let is_of_key = |sign: char| sign.is_alphanumeric() || "._-".contains(sign);
    let rest = text.get(at..)?;
    let key = &rest[..rest.find(|sign| !is_of_key(sign)).unwrap_or(rest.len())];
    if key.is_empty() {
        return None;
    }
    let before: Vec<&str> = text.get(..at)?.lines().collect();
    // The line of the repeated key is cut off at `at`. It must not count as one of the lines above.
    let above = before.len() - usize::from(!text[..at].ends_with('\n') && at > 0);
    let is_first = |line: &&str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| !rest.starts_with(is_of_key) || rest.starts_with('.'))
    };
    let lines = before[..above].iter().enumerate().rev();
    let own_table = lines.take_while(|(_, line)| !line.trim_start().starts_with('['));
    let first = own_table.filter(|(_, line)| is_first(line)).last();
    Some(match first {
        Some((line, _)) => format!("`{key}` is set twice; it is set first in line {}", line + 1),
        None => format!("`{key}` is set twice"),
    })
}

/// Returns the position of a list that begins in a text and does not end there.
fn open_list(text: &str) -> Option<usize> {
    let (mut open, mut quote, mut at) = (Vec::new(), None, 0);
    let bytes = text.as_bytes();
    let mut is_line_start = true;
    while let Some(&byte) = bytes.get(at) {
        match (quote, byte) {
            (Some(b'"'), b'\\') => at += 1,
            (Some(end), byte) if end == byte || byte == b'\n' => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'#') => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
                continue;
            }
            // The header of a table is not a list.
            (None, b'[') if !(is_line_start && open.is_empty()) => open.push(at),
            (None, b']') => drop(open.pop()),
            _ => {}
        }
        is_line_start = match byte {
            b'\n' => true,
            b' ' | b'\t' | b'[' => is_line_start,
            _ => false,
        };
        at += 1;
    }
    open.first().copied()
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    /// Returns the first error of a text, and its line.
    fn told(text: &str) -> String {
        let (_, errors) = DeTable::parse_recoverable(text);
        let error = reword(text, errors.into_iter().next().unwrap().into());
        format!("{}: {}", text[..error.at].matches('\n').count() + 1, error.what)
    }

    #[test]
    fn slips_are_named() {
        for (text, right) in [
            ("[a]\nb = 1\nc = 2\nb = 3\n", "4: `b` is set twice; it is set first in line 2"),
            ("b = 1\n[a]\nb = 1\nb = 2", "4: `b` is set twice; it is set first in line 3"),
            ("a = “x”\n", "1: a straight quote (\") is expected, not “"),
            ("a =\nb = 1\n", "1: a value is missing"),
            ("a = word\n", "1: text must be in quotes: \"...\""),
            (
                "# [\nx = \"[\"\na = [\"x\"\n\n[[route]]\n",
                "3: this list has no end: `]` is missing",
            ),
            ("a = [1, [2]\nb = 3\n", "1: this list has no end: `]` is missing"),
        ] {
            assert_eq!(told(text), right, "{text}");
        }
        let told = told("a = [1 2]\n");
        assert!(told.starts_with("1: between two values of a list a comma is expected"), "{told}");
    }
}
