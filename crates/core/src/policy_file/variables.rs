//! Replaces `${NAME}` in the strings of a file. The engine does not read the environment: a program supplies the
//! values.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostics::ConfigError;

/// A string with its variables filled in.
pub struct ExpandedText {
    /// The string.
    pub text: String,
    /// The names of the variables that the string contained.
    pub names: Vec<String>,
}

/// What is wrong with a variable, and the part of the string where it is wrong.
pub struct VariableFault {
    part: String,
    /// The error.
    pub what: String,
}

impl VariableFault {
    /// Returns the error with the position of the faulty part in the file.
    pub fn at(self, text: &str, span: Range<usize>) -> ConfigError {
        let within = text.get(span.clone()).and_then(|raw| raw.find(&self.part)).unwrap_or(0);
        ConfigError { at: span.start + within, what: self.what }
    }
}

/// Replaces variables by their values. `$${` becomes `${`. `look_up` returns the value of a variable, or the reason why
/// it has none.
///
/// # Errors
/// If `look_up` has no value, or a `${` has no `}`.
pub fn fill<'a>(
    written: &str,
    look_up: &dyn Fn(&str) -> Result<&'a str, String>,
) -> Result<ExpandedText, VariableFault> {
    let mut filled = ExpandedText { text: String::new(), names: Vec::new() };
    let mut rest = written;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            filled.text += before;
            filled.text += "${";
            rest = &reference[2..];
            continue;
        }
        filled.text += before;
        let fault = |what| VariableFault { part: reference.to_owned(), what };
        let Some((name, after)) = reference[2..].split_once('}') else {
            let what = "`${` without its `}`; what is not a variable is written `$${`";
            return Err(fault(what.to_owned()));
        };
        let value =
            look_up(name).map_err(|what| VariableFault { part: format!("${{{name}}}"), what })?;
        filled.text += value;
        filled.names.push(name.to_owned());
        rest = after;
    }
    filled.text += rest;
    Ok(filled)
}

/// Refuses variables in the strings of `table`, which was read from `text`: the engine has no
/// values for them.
pub(super) fn refuse(table: &mut DeTable<'_>, text: &str) -> Result<(), ConfigError> {
    let none = |name: &str| {
        let what = "variables are not known here; write the value";
        Err(format!("{what}, or `$${{{name}}}` if this is no variable"))
    };
    let mut unread: Vec<&mut Spanned<DeValue<'_>>> =
        table.iter_mut().map(|(_, value)| value).collect();
    while let Some(value) = unread.pop() {
        let span = value.span();
        match value.get_mut() {
            DeValue::Table(table) => unread.extend(table.iter_mut().map(|(_, value)| value)),
            DeValue::Array(elements) => unread.extend(elements.iter_mut()),
            DeValue::String(written) if written.contains("${") => {
                let filled = fill(written, &none).map_err(|fault| fault.at(text, span))?;
                *written = Cow::Owned(filled.text);
            }
            _ => {}
        }
    }
    Ok(())
}
