//! Ids and progress tokens as values that can be compared.

use bytes::Bytes;

use crate::protocol::json;

/// A request id or progress token: a string or an integer, never anything else (MCP schema,
/// `RequestId` and `ProgressToken`).
///
/// `1`, `1.0` and `1e0` are the same integer; `"1"` is a string. Integers of any size are kept
/// exactly; strings are compared by what they spell, lone surrogates included.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// An integer that fits.
    Integer(i64),
    /// Any other integer: sign and digits.
    Big(Box<str>),
    /// A string, escapes read.
    Text(Bytes),
}

/// Digits of an integer id that is written with an exponent. A longer number is not read as an
/// integer.
const DIGITS_MAX: usize = 400;

/// Every number of so many digits fits.
const SHORT_DIGITS: usize = 18;

impl Key {
    /// Reads raw JSON text; `None` if the text is neither a string nor an integer.
    pub fn read(text: &Bytes) -> Option<Self> {
        match text.first()? {
            b'"' => {
                // A copy: a key may outlive the buffer that it came in by far.
                let inner = json::unescape(text)?.into_owned();
                Some(Self::Text(Bytes::from(inner)))
            }
            b'-' | b'0'..=b'9' => Self::integer(text),
            _ => None,
        }
    }

    fn integer(text: &[u8]) -> Option<Self> {
        if let [first @ b'1'..=b'9', rest @ ..] = text
            && rest.len() < SHORT_DIGITS
            && rest.iter().all(u8::is_ascii_digit)
        {
            // Nearly all ids of requests.
            let digit = |digit: u8| i64::from(digit - b'0');
            let value = rest.iter().fold(digit(*first), |value, next| value * 10 + digit(*next));
            return Some(Self::Integer(value));
        }
        let text = std::str::from_utf8(text).ok()?;
        if let Ok(value) = text.parse::<i64>()
            && !text.starts_with("-0")
            && (text == "0" || !text.starts_with('0'))
        {
            return Some(Self::Integer(value));
        }
        json::number_parts(text)
            .and_then(|(negative, digits, exponent)| Self::from_digits(negative, digits, exponent))
    }

    fn from_digits(negative: bool, mut digits: String, exponent: i64) -> Option<Self> {
        if digits.is_empty() {
            return Some(Self::Integer(0));
        }
        let zeros = usize::try_from(exponent).ok()?;
        if digits.len().saturating_add(zeros) > DIGITS_MAX {
            return None;
        }
        digits.extend(std::iter::repeat_n('0', zeros));
        if negative {
            digits.insert(0, '-');
        }
        Some(digits.parse().map_or_else(|_| Self::Big(digits.into_boxed_str()), Self::Integer))
    }

    /// Whether the other key is the same value in another form: the other JSON type, or the double
    /// that a JavaScript server makes of a large integer. Careless servers return such forms.
    pub fn respelled(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(text), number) | (number, Self::Text(text)) => {
                !matches!(number, Self::Text(_)) && number.spells(text)
            }
            (one, two) => one.as_f64() == two.as_f64(),
        }
    }

    /// Every number that is [`Key::respelled`] of a number has the same class, and no other number;
    /// a string has none.
    pub fn class(&self) -> Option<u64> {
        self.as_f64().map(f64::to_bits)
    }

    /// The only key of the other JSON type that is [`Key::respelled`] of this one.
    pub fn in_other_type(&self) -> Option<Self> {
        match self {
            Self::Text(text) => Self::integer(text).filter(|number| number.spells(text)),
            number => Some(Self::Text(number.to_string().into())),
        }
    }

    fn spells(&self, text: &[u8]) -> bool {
        match self {
            Self::Integer(value) => {
                let plain = !text.starts_with(b"+") && !text.starts_with(b"-0");
                let plain = plain && (text == b"0" || !text.starts_with(b"0"));
                plain && std::str::from_utf8(text).is_ok_and(|text| text.parse() == Ok(*value))
            }
            Self::Big(digits) => digits.as_bytes() == text,
            Self::Text(own) => own == text,
        }
    }

    /// The length in bytes, without quotes.
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(_) => size_of::<i64>(),
            Self::Big(digits) => digits.len(),
            Self::Text(text) => text.len(),
        }
    }

    /// Whether the key is the empty string.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key as JSON text, in the plainest spelling.
    pub fn to_json(&self) -> Bytes {
        match self {
            Self::Text(text) => json::quote(&String::from_utf8_lossy(text)),
            number => Bytes::from(number.to_string()),
        }
    }

    fn as_f64(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "it is the loss that is looked for")]
            Self::Integer(value) => Some(*value as f64),
            Self::Big(digits) => digits.parse().ok(),
            Self::Text(_) => None,
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Big(digits) => f.write_str(digits),
            Self::Text(text) => write!(f, "{:?}", String::from_utf8_lossy(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, other: &str, same: bool, respelled: bool) {
        let read = |text: &str| Key::read(&Bytes::copy_from_slice(text.as_bytes()));
        let (one, two) = (read(text).expect(text), read(other).expect(other));
        assert_eq!(one == two, same, "{one} = {two}");
        assert_eq!(one.respelled(&two), respelled, "{one} ~ {two}");
    }

    #[test]
    fn keys_are_compared_by_value_and_type() {
        check("1", "1.0", true, true);
        check("1", "10e-1", true, true);
        check("-0", "0", true, true);
        check("1", "\"1\"", false, true);
        check("\"\"", "0", false, false);
        check("\"a\\u0062\"", "\"ab\"", true, false);
        check("9007199254740993", "9007199254740992", false, true);
        check("1180591620717411303424", "1180591620717411303424.0", true, true);
        check("1e3", "1000", true, true);
        check("999999999999999999", "999999999999999999.0", true, true);
        check("9223372036854775807", "\"9223372036854775807\"", false, true);
    }

    #[test]
    fn only_strings_and_integers_are_keys() {
        for text in ["1.5", "true", "null", "{}", "[1]", "1e999999", "01", "", "NaN", "\"a", "1 2"]
        {
            assert_eq!(Key::read(&Bytes::copy_from_slice(text.as_bytes())), None, "{text}");
        }
    }
}
