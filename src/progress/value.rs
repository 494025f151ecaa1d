//! A progress value: the amount of work that is done, and perhaps the total.

use bytes::Bytes;

/// A number and how the server spelled it.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// The value; finite.
    pub value: f64,
    /// The JSON text.
    pub text: Bytes,
}

/// The progress that a server claims: a value, perhaps of a total.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressValue {
    /// The work done.
    pub value: Number,
    /// All the work.
    pub total: Option<Number>,
}
