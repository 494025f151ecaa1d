//! A fast reader of plain progress: compliant `notifications/progress` that has only the usual members, and that every
//! parser reads in the same way.

use crate::progress::value::NumberView;
use crate::protocol::{json, unicode};

/// Limit of the length of a message, in bytes, that the fast path reads. Longer messages take the ordinary path.
pub(crate) const LENGTH_MAX: usize = 4 << 10;

/// One notification, as slices of its text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PlainProgress<'a> {
    pub(crate) token: &'a [u8],
    pub(crate) progress: f64,
    pub(crate) total: Option<NumberView<'a>>,
    /// The text, as a JSON string.
    pub(crate) message: Option<&'a [u8]>,
}

/// A reader that accepts only one form of text.
pub(crate) struct Reader<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.at = json::skip_space(self.text, self.at);
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then_some(())
    }

    /// Reads a string with its quotes. `None` unless all parsers read the string in the same way.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at - 1;
        loop {
            let rest = self.text.get(self.at..)?;
            let length = json::end_of_plain(rest)?;
            self.at += length + 1;
            match rest[length] {
                b'"' => return Some(&self.text[start..self.at]),
                b'\\' => match self.text.get(self.at)? {
                    // `\u` is not accepted, because parsers read half of a surrogate pair in different ways.
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    pub(crate) fn number(&mut self) -> Option<&'a [u8]> {
        self.at = json::skip_space(self.text, self.at);
        let start = self.at;
        let digits = |reader: &mut Self| {
            let rest = &reader.text[reader.at..];
            let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            reader.at += count;
            (count > 0).then_some(count)
        };
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        let zero = self.text.get(self.at) == Some(&b'0');
        let count = digits(self)?;
        // JSON forbids leading zeros, and lenient parsers read such numbers in different ways.
        if zero && count > 1 {
            return None;
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            digits(self)?;
        }
        // A number with an exponent takes the ordinary path.
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            return None;
        }
        Some(&self.text[start..self.at])
    }

    /// Reads the members of an object with `member`, which rejects unknown members.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            member(self, key)?;
            match self.byte()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }
}

/// The number of digits up to which every integer is exact as a double.
const EXACT_DIGITS: usize = 15;

/// Returns the value of a number's text; `None` if the value is not finite.
pub(crate) fn value(text: &[u8]) -> Option<f64> {
    if text.len() <= EXACT_DIGITS && text.iter().all(u8::is_ascii_digit) {
        let digits = text.iter().map(|digit| u64::from(digit - b'0'));
        return Some(digits.fold(0, |value, digit| value * 10 + digit) as f64);
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// Stores a member that occurs for the first time; `None` if it occurs a second time.
fn once<'a>(place: &mut Option<&'a [u8]>, found: &'a [u8]) -> Option<()> {
    place.replace(found).is_none().then_some(())
}

/// The members of a progress notification that has only the usual members. Each member may be absent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PlainMembers<'a> {
    /// A string or a number.
    pub(crate) token: Option<&'a [u8]>,
    /// A number.
    pub(crate) progress: Option<&'a [u8]>,
    /// A number, and its value if that is finite.
    pub(crate) total: Option<(&'a [u8], Option<f64>)>,
    /// A string.
    pub(crate) message: Option<&'a [u8]>,
}

impl<'a> PlainProgress<'a> {
    /// Returns the notification with these members; `None` if a member is missing or unusual.
    pub(crate) fn of(members: PlainMembers<'a>) -> Option<Self> {
        let PlainMembers { token, progress, total, message } = members;
        let total = match total {
            Some((text, value)) => Some(NumberView { value: value?, text }),
            None => None,
        };
        Some(Self { token: token?, progress: value(progress?)?, total, message })
    }
}

impl<'a> PlainMembers<'a> {
    /// Reads a whole message; `None` if the message is not progress, or is unusual in any way.
    pub(crate) fn read(text: &'a [u8]) -> Option<Self> {
        if text.len() > LENGTH_MAX || !unicode::is_utf8(text) {
            return None;
        }
        let mut reader = Reader { text, at: 0 };
        let (mut version, mut method, mut params) = (None, None, None);
        reader.object(|reader, key| match key {
            br#""jsonrpc""# => once(&mut version, reader.string()?),
            br#""method""# => {
                let name = reader.string()?;
                // Most messages are not progress, so the reader stops at the method.
                (name == br#""notifications/progress""#).then_some(())?;
                once(&mut method, name)
            }
            br#""params""# if params.is_none() => {
                params = Some(Self::params(reader)?);
                Some(())
            }
            _ => None,
        })?;
        method?;
        let whole = json::skip_space(text, reader.at) == text.len();
        params.filter(|_| whole && version == Some(br#""2.0""#))
    }

    fn params(reader: &mut Reader<'a>) -> Option<Self> {
        let (mut token, mut progress, mut total, mut message) = (None, None, None, None);
        reader.object(|reader, key| match key {
            br#""progressToken""# => {
                reader.at = json::skip_space(reader.text, reader.at);
                let found = match reader.text.get(reader.at)? {
                    b'"' => reader.string()?,
                    _ => reader.number()?,
                };
                once(&mut token, found)
            }
            br#""progress""# => once(&mut progress, reader.number()?),
            br#""total""# => once(&mut total, reader.number()?),
            br#""message""# => once(&mut message, reader.string()?),
            _ => None,
        })?;
        let total = total.map(|text| (text, value(text)));
        Some(Self { token, progress, total, message })
    }
}
