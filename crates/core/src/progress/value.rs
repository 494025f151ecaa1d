//! A progress value: the amount of finished work, and optionally the total.

use bytes::Bytes;

/// Whether a client can show `total` together with `value`. With any other total, clients show "3 of 0" or "4 of 3".
pub(crate) fn is_total_of(total: f64, value: f64) -> bool {
    total > 0.0 && value <= total
}

/// A number, and the text in which the server wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// The value, which is finite.
    pub value: f64,
    /// The JSON text.
    pub text: Bytes,
}

impl Number {
    /// Returns a view of the number and its text.
    pub fn view(&self) -> NumberView<'_> {
        NumberView { value: self.value, text: &self.text }
    }
}

/// A number, borrowed from the text that contains it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberView<'a> {
    /// The value, which is finite.
    pub value: f64,
    /// The JSON text.
    pub text: &'a [u8],
}

/// The progress that a server claims: a value, optionally with a total.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressValue {
    /// The amount of finished work.
    pub value: Number,
    /// The amount of all work.
    pub total: Option<Number>,
}

impl ProgressValue {
    /// The same value, of `total` if it has no total of its own.
    pub(crate) fn or_of(self, total: Number) -> Self {
        Self { total: self.total.or(Some(total)), ..self }
    }

    /// The same value, without a total that is less than the value.
    pub(crate) fn within_total(self) -> Self {
        let most = self.value.value;
        Self { total: self.total.filter(|total| most <= total.value), ..self }
    }

    /// The same value, in its texts.
    pub fn view(&self) -> ProgressView<'_> {
        ProgressView { value: self.value.view(), total: self.total.as_ref().map(Number::view) }
    }
}

/// A progress value, borrowed from the text that contains it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgressView<'a> {
    /// The amount of finished work.
    pub value: NumberView<'a>,
    /// The amount of all work.
    pub total: Option<NumberView<'a>>,
}

/// Writes a finite number as JSON text, without an exponent if the text is then short.
pub(crate) fn spell(value: f64) -> Bytes {
    let mut text = Vec::new();
    append_spelled(&mut text, value);
    Bytes::from(text)
}

/// Appends the same text that [`spell`] returns.
pub(crate) fn append_spelled(out: &mut Vec<u8>, value: f64) {
    if append_decimal(out, value) {
        return;
    }
    let is_plain = value == 0.0 || (1e-7..1e21).contains(&value.abs());
    let text = if is_plain { value.to_string() } else { format!("{value:e}") };
    out.extend_from_slice(text.as_bytes());
}

/// The largest number of millionths that a double represents exactly. Below it, two different decimal numbers with six
/// decimals are never the same double.
const MILLIONTHS_MAX: f64 = 1e15;

/// Appends a positive number that consists of whole millionths. Returns false for any other number, which takes ten
/// times as long to write.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within range")]
fn append_decimal(out: &mut Vec<u8>, value: f64) -> bool {
    let millionths = (value * 1e6).round();
    let is_exact = (1.0..MILLIONTHS_MAX).contains(&millionths) && millionths / 1e6 == value;
    if !is_exact {
        return false;
    }
    let millionths = millionths as u64;
    let (mut whole, mut rest) = (millionths / 1_000_000, millionths % 1_000_000);
    // Written from the last digit to the first: at most nine digits, a point, and six digits after it.
    let mut text = [b'.'; 16];
    let mut at = text.len();
    if rest > 0 {
        let mut digits = 6;
        while rest % 10 == 0 {
            rest /= 10;
            digits -= 1;
        }
        for _ in 0..digits {
            at -= 1;
            text[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        at -= 1;
    }
    loop {
        at -= 1;
        text[at] = b'0' + (whole % 10) as u8;
        whole /= 10;
        if whole == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
    true
}
