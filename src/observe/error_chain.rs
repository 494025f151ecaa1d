//! Formats an error with its causes, for logs and users.

use std::error::Error;

/// Writes an error and its causes on one line, separated by colons.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
