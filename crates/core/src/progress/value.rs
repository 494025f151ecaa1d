//! A progress value: the amount of work that is done, and perhaps the total.

use bytes::Bytes;

/// Whether a client can show `total` beside `value`. Beside any other total clients show "3 of 0" or "4 of 3".
pub(crate) fn is_total_of(total: f64, value: f64) -> bool {
    total > 0.0 && value <= total
}

/// A number and how the server spelled it.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// The value; finite.
    pub value: f64,
    /// The JSON text.
    pub text: Bytes,
}

impl Number {
    /// The same number, in its text.
    pub fn view(&self) -> NumberView<'_> {
        NumberView { value: self.value, text: &self.text }
    }
}

/// A number in a text that somebody else keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberView<'a> {
    /// The value; finite.
    pub value: f64,
    /// The JSON text.
    pub text: &'a [u8],
}

/// The progress that a server claims: a value, perhaps of a total.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressValue {
    /// The work done.
    pub value: Number,
    /// All the work.
    pub total: Option<Number>,
}

impl ProgressValue {
    /// The same value, in its texts.
    pub fn view(&self) -> ProgressView<'_> {
        ProgressView { value: self.value.view(), total: self.total.as_ref().map(Number::view) }
    }
}

/// A progress value in a text that somebody else keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgressView<'a> {
    /// The work done.
    pub value: NumberView<'a>,
    /// All the work.
    pub total: Option<NumberView<'a>>,
}
