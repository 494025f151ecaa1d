//! Ids and tokens, and the text of messages, as clients and servers compare them.

/// Whether two JSON texts are the same name: the same string or the same number.
pub(crate) fn same(one: &str, other: &str) -> bool {
    plain(one) == plain(other)
}

/// Whether two JSON texts are one name in any spelling: `42`, `"42"`, `42.0`. Of large numbers a server of JavaScript
/// sends the nearest double. Two strings are one name only if they are the same.
pub(crate) fn alike(one: &str, other: &str) -> bool {
    let double = |text: &str| {
        let value = value(text);
        let number = number(&value).and_then(|_| value.parse::<f64>().ok());
        number.filter(|number| number.is_finite())
    };
    if one.starts_with('"') && other.starts_with('"') {
        return same(one, other);
    }
    same(&value(one), &value(other)) || double(one).is_some_and(|one| double(other) == Some(one))
}

/// A name in the only spelling that this function has for it.
pub(crate) fn plain(text: &str) -> String {
    if let Ok(string) = serde_json::from_str::<String>(text) {
        return serde_json::json!(string).to_string();
    }
    number(text).unwrap_or_else(|| text.to_owned())
}

/// The text within the quotes of a string, or the text of another value.
fn value(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
}

/// A JSON number as digits and a power of ten, such as `15e-1`.
fn number(text: &str) -> Option<String> {
    serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit()).then_some(())?;
    let (sign, size) = text.strip_prefix('-').map_or(("", text), |size| ("-", size));
    let (mantissa, power) = size.split_once(['e', 'E']).unwrap_or((size, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let kept = digits.trim_end_matches('0');
    let dropped = i64::try_from(digits.len() - kept.len()).ok()?;
    let power = power.parse::<i64>().ok()? - i64::try_from(fraction.len()).ok()? + dropped;
    match kept.trim_start_matches('0') {
        "" => Some("0".to_owned()),
        kept if power == 0 => Some(format!("{sign}{kept}")),
        kept => Some(format!("{sign}{kept}e{power}")),
    }
}

/// A JSON text with U+FFFD in the place of each escape of half a surrogate pair, which strict readers refuse.
pub(crate) fn readable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match (surrogate(rest), rest.get(6..).and_then(surrogate)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(_), _) => {
                out.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            // The character behind a backslash is a part of the escape, also if it is a backslash.
            (None, _) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out + rest
}

/// The half of a surrogate pair whose escape begins a text.
fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok().filter(|code| (0xD800..=0xDFFF).contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_spellings() {
        assert!(same("1.50", "15e-1") && same("1e3", "1000") && same("-0.0", "0"));
        assert!(same(r#""a\u0062""#, r#""ab""#) && !same("1", "\"1\"") && !same("7.5", "75"));
        assert!(alike("42", "\"42\"") && alike("\"4.2e1\"", "42") && alike("0", "\"0\""));
        assert!(alike("9007199254740993", "9007199254740992") && !alike("42", "\"042\""));
        assert!(!alike("\"41\"", "\"41.0\"") && alike("41", "\"41.0\""));
        assert!(!alike("\"a\"", "\"b\"") && !alike("7.5", "7"));
    }

    #[test]
    fn halves_of_pairs_are_replaced() {
        for (text, readable_text) in [
            (r"\ud800 a", r"\ufffd a"),
            (r"\uD83D\uDE00", r"\uD83D\uDE00"),
            (r"\ud83d\ud83d\ude00", r"\ufffd\ud83d\ude00"),
            (r"\\ud83d", r"\\ud83d"),
            (r"\ude00\ud83d", r"\ufffd\ufffd"),
            (r"\u00e9é\n", r"\u00e9é\n"),
        ] {
            assert_eq!(readable(text), readable_text);
        }
    }
}
