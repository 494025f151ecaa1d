//! Ids and progress tokens as values that can be compared.

use bytes::Bytes;

use crate::protocol::json;

/// A request id or progress token: a string or a number, never anything else (MCP schema, `RequestId` and
/// `ProgressToken`). The specification asks for integers, its schema says `number`, and some clients use a clock
/// or `Math.random()`.
///
/// `1`, `1.0` and `1e0` are the same number; `"1"` is a string. Numbers of any size are kept exactly. Strings are
/// compared after their escapes are read, including lone surrogates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// An integer that fits into an `i64`.
    Integer(i64),
    /// Any other number, in a normal form that is the same for all spellings of its value.
    Number(Box<str>),
    /// A string, whose escapes have been read.
    Text(Bytes),
}

/// Limit of the digits before the decimal point of an id that Milepost writes without an exponent.
const DIGITS_MAX: usize = 400;

/// Limit of the zeros between the decimal point and the first digit of a number that Milepost writes without an
/// exponent. JavaScript has the same limit.
const ZEROS: i64 = 5;

/// Number of digits up to which every integer fits into an `i64`.
const SHORT_DIGITS: usize = 18;

impl Key {
    /// Reads raw JSON text; `None` if the text is neither a string nor a number.
    pub fn read(text: &(impl AsRef<[u8]> + ?Sized)) -> Option<Self> {
        let text = text.as_ref();
        match text.first()? {
            b'"' => {
                // Copied, because a key may exist much longer than the buffer that it came in.
                let inner = json::unescape(text)?.into_owned();
                Some(Self::Text(Bytes::from(inner)))
            }
            b'-' | b'0'..=b'9' => Self::number(text),
            _ => None,
        }
    }

    fn number(text: &[u8]) -> Option<Self> {
        if let [first @ b'1'..=b'9', rest @ ..] = text
            && rest.len() < SHORT_DIGITS
        {
            // The path for nearly all ids of requests.
            let mut digits = rest.iter();
            let value = digits.try_fold(i64::from(first - b'0'), |value, digit| {
                digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
            });
            if let Some(value) = value {
                return Some(Self::Integer(value));
            }
        }
        let text = std::str::from_utf8(text).ok()?;
        // Rust's parser accepts `-0` and `007`, but `-0` is the number 0, and `007` is not a JSON number. Both are
        // handled below.
        if let Ok(value) = text.parse::<i64>()
            && !text.starts_with("-0")
            && (text == "0" || !text.starts_with('0'))
        {
            return Some(Self::Integer(value));
        }
        let (negative, mut digits, exponent) = json::number_parts(text)?;
        if digits.is_empty() {
            return Some(Self::Integer(0));
        }
        let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
        // The number of digits before the decimal point.
        let point = length.saturating_add(exponent);
        let before = usize::try_from(point).ok().filter(|before| *before <= DIGITS_MAX);
        match before {
            Some(before) if before >= digits.len() => {
                digits.extend(std::iter::repeat_n('0', before - digits.len()));
            }
            Some(before) if before > 0 => digits.insert(before, '.'),
            _ if (-ZEROS..=0).contains(&point) => {
                let zeros = usize::try_from(-point).unwrap_or_default();
                digits = format!("0.{}{digits}", "0".repeat(zeros));
            }
            _ => {
                if digits.len() > 1 {
                    digits.insert(1, '.');
                }
                let power = point.saturating_sub(1);
                digits = format!("{digits}e{power:+}");
            }
        }
        if negative {
            digits.insert(0, '-');
        }
        let integer = digits.parse().map(Self::Integer);
        Some(integer.unwrap_or_else(|_| Self::Number(digits.into_boxed_str())))
    }

    /// Whether the other key is the same value in another form: as the other JSON type, or as the double that a
    /// JavaScript server would use instead of a large number. Careless servers return ids in these forms.
    pub fn respelled(&self, other: &Self) -> bool {
        match (self, other) {
            // Two strings are one name only if they are equal.
            (Self::Text(_), Self::Text(_)) => false,
            (Self::Text(text), number) | (number, Self::Text(text)) => {
                let spelled = Self::number(text).and_then(|spelled| spelled.class());
                spelled.is_some() && spelled == number.class()
            }
            (one, two) => one == two || one.class().is_some() && one.class() == two.class(),
        }
    }

    /// Returns the class of a number. Two numbers have the same class if and only if one is [`Key::respelled`] of the
    /// other, or they are equal. `None` for a string, and for a number beyond the range of a double.
    pub fn class(&self) -> Option<u64> {
        // Adding 0.0 turns -0.0 into 0.0.
        self.as_f64().filter(|value| value.is_finite()).map(|value| (value + 0.0).to_bits())
    }

    /// Returns the class of the numbers that are [`Key::respelled`] of this key, which may also be a string that spells
    /// a number.
    pub fn class_of_value(&self) -> Option<u64> {
        match self {
            Self::Text(text) => Self::number(text).and_then(|number| number.class()),
            number => number.class(),
        }
    }

    /// Returns the key of the other JSON type that has exactly the same value.
    pub fn in_other_type(&self) -> Option<Self> {
        match self {
            Self::Text(text) => Self::number(text),
            number => Some(Self::Text(number.to_string().into())),
        }
    }

    /// Returns the length in bytes, without quotes.
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(_) => size_of::<i64>(),
            Self::Number(digits) => digits.len(),
            Self::Text(text) => text.len(),
        }
    }

    /// Whether the key is the empty string.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the key as JSON text, in the simplest spelling.
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
            Self::Number(digits) => digits.parse().ok(),
            Self::Text(_) => None,
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Number(digits) => f.write_str(digits),
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
    fn numbers_with_fractions_and_exponents_are_keys() {
        check("7.5", "75e-1", true, true);
        check("7.5", "\"7.5\"", false, true);
        check("-0.25", "-2.5e-1", true, true);
        check("7.5", "7", false, false);
        check("-7.5", "7.5", false, false);
        check("0.1", "0.10000000000000000001", false, true);
        check("1e999999", "10e999998", true, true);
        check("1e999999", "1e999998", false, false);
        check("42", "\"42.0\"", false, true);
        check("42", "\"4.2e1\"", false, true);
        check("42", "\"042\"", false, false);
        check("42", "\" 42\"", false, false);
        check("-1e-400", "0", false, true);
    }

    #[test]
    fn a_number_has_one_spelling() {
        for (text, spelled) in [
            ("7.50", "7.5"),
            ("1e3", "1000"),
            ("-2.5E-1", "-0.25"),
            ("0.0000015", "0.0000015"),
            ("15e-8", "1.5e-7"),
            ("1e-7", "1e-7"),
            ("1.25e500", "1.25e+500"),
            ("-0.0", "0"),
        ] {
            let key = Key::read(&Bytes::copy_from_slice(text.as_bytes())).expect(text);
            assert_eq!(key.to_json(), spelled, "{text}");
            assert_eq!(Key::read(&key.to_json()), Some(key), "{text}");
        }
    }

    #[test]
    fn only_strings_and_numbers_are_keys() {
        for text in ["true", "null", "{}", "[1]", "01", "1.", ".5", "", "NaN", "\"a", "1 2"] {
            assert_eq!(Key::read(&Bytes::copy_from_slice(text.as_bytes())), None, "{text}");
        }
    }
}
