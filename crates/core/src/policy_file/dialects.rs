//! `[[dialect]]`, and the dialects that settings name.

use std::sync::Arc;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::compound::{FinalSection, OneOrMore, Sources};
use super::diagnostics::ConfigError;
use super::setting::{SettingChange, Settings};
use super::text::{JsonPointer, OneOf, Spelling, TextValue};
use super::values::{DEFAULT_DIALECTS, dialects};
use crate::progress::dialect::{self, CustomDialect, Dialect, Final, TextSource};

/// A dialect of progress that is not built in: JSON Pointers (RFC 6901) to the parts of its messages. A
/// `#` at the end of a part descends into JSON in a string: "/params/content/0/text#/percentComplete".
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DialectTable {
    /// The name, for `dialects` of routes.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub name: Spanned<String>,
    /// The method of the notifications, or several methods. A dialect has either `method` or `source`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<OneOrMore>"))]
    pub method: Option<Spanned<OneOrMore>>,
    /// The place of lines that are JSON objects: standard error (stderr), lines among the messages
    /// (stdout), or the `data` of log notifications (log); or several places. The pointers then begin at
    /// the object.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Sources>"))]
    pub source: Option<Spanned<Sources>>,
    /// The id of the request.
    pub request_id: Option<TextValue<JsonPointer>>,
    /// The value in the place of the progress token.
    pub token: Option<TextValue<JsonPointer>>,
    /// The value: a number, also in a string, or "45%" or "234/520".
    pub progress: Option<TextValue<JsonPointer>>,
    /// The total of the value.
    pub total: Option<TextValue<JsonPointer>>,
    /// The text.
    pub message: Option<TextValue<JsonPointer>>,
    /// The mark of the last message of a call: a pointer to `true`, or a pointer and the value there.
    #[serde(rename = "final")]
    pub last: Option<FinalSection>,
    /// The scale of a value without a total: hundredths (percent), parts of one (unit), or not known
    /// (raw). Default: "raw".
    pub scale: Option<TextValue<OneOf<dialect::Count>>>,
}

/// The value of a key, if the table has the key.
pub fn value_of<S: Spelling>(key: &Option<TextValue<S>>) -> Option<S::Value> {
    key.as_ref().map(|text| text.0.clone())
}

/// Returns the dialects that a file describes.
///
/// # Errors
/// If a dialect is invalid, or its name is already used.
pub fn read(tables: &[Spanned<DialectTable>]) -> Result<Vec<Dialect>, ConfigError> {
    let mut own: Vec<Dialect> = Vec::new();
    for table in tables {
        let dialect = describe(table)?;
        let name = &table.get_ref().name;
        let is_taken = dialect.name == DEFAULT_DIALECTS
            || dialect::ALL.iter().chain(&own).any(|known| known.name() == dialect.name);
        if is_taken {
            let what =
                format!("a dialect {:?} is there already; another name is expected", dialect.name);
            return Err(ConfigError::new(name.span(), what));
        }
        own.push(Dialect::Custom(Arc::new(dialect)));
    }
    Ok(own)
}

fn describe(table: &Spanned<DialectTable>) -> Result<CustomDialect, ConfigError> {
    let section = table.get_ref();
    let name = &section.name;
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.get_ref().is_empty() || !name.get_ref().chars().all(is_part) {
        let what = format!("{:?} is no name; one such as \"acme\" is expected", name.get_ref());
        return Err(ConfigError::new(name.span(), what));
    }
    let methods = section.method.as_ref().map(methods).transpose()?;
    let sources = section.source.as_ref().map(sources).transpose()?;
    if let (Some(_), Some(source)) = (&methods, &section.source) {
        let what = "`source` beside `method`; a dialect is of one or the other";
        return Err(ConfigError::new(source.span(), what));
    }
    if let (Some(source), Some(_)) = (&section.source, &section.last) {
        let what = "`source` beside `final`; text has no last line";
        return Err(ConfigError::new(source.span(), what));
    }
    if methods.is_none() && sources.is_none() {
        let what = "`method` or `source` is expected, such as method = \"acme/status\"";
        return Err(ConfigError::new(table.span(), what));
    }
    let dialect = CustomDialect {
        name: name.get_ref().clone(),
        methods: methods.unwrap_or_default(),
        sources: sources.unwrap_or_default(),
        request_id: value_of(&section.request_id),
        token: value_of(&section.token),
        progress: value_of(&section.progress),
        total: value_of(&section.total),
        message: value_of(&section.message),
        last: section
            .last
            .as_ref()
            .map(|last| Final { pointer: last.pointer.0.clone(), equals: last.equals.clone() }),
        scale: value_of(&section.scale).unwrap_or_default(),
    };
    let pointers = [&dialect.request_id, &dialect.token, &dialect.progress, &dialect.message];
    if pointers.iter().all(|pointer| pointer.is_none()) && dialect.last.is_none() {
        let what = "at least one of `request_id`, `token`, `progress`, `message` and `final` is \
            expected, such as progress = \"/params/percent\"";
        return Err(ConfigError::new(table.span(), what));
    }
    Ok(dialect)
}

/// Resolves the names of dialects for all tools and for single tools, and returns `settings` with these dialects.
///
/// # Errors
/// If a name is not the name of a dialect, or two dialects claim the same method.
pub fn choose<'a>(
    mut settings: Settings,
    named: impl Iterator<Item = (Option<&'a str>, &'a [Spanned<String>])>,
    own: &[Dialect],
) -> Result<Settings, ConfigError> {
    for (tool, names) in named {
        let chosen = SettingChange::dialects(chosen(names, own)?);
        match tool {
            None => settings.call.push(chosen),
            Some(tool) => {
                let known = settings.tools.iter_mut().find(|(name, _)| name == tool);
                known.into_iter().for_each(|(_, call)| call.push(chosen.clone()));
            }
        }
    }
    Ok(settings)
}

/// Checks and returns the methods of a dialect.
fn methods(written: &Spanned<OneOrMore>) -> Result<Vec<String>, ConfigError> {
    let methods = &written.get_ref().0;
    if methods.is_empty() {
        return Err(ConfigError::new(written.span(), "at least one method is expected"));
    }
    for (at, method) in methods.iter().enumerate() {
        if method.is_empty() {
            return Err(ConfigError::new(
                written.span(),
                "a method such as \"acme/status\" is expected",
            ));
        }
        if methods[..at].contains(method) {
            return Err(ConfigError::new(written.span(), format!("{method:?} is there twice")));
        }
    }
    Ok(methods.clone())
}

/// Checks and returns the sources of a dialect.
fn sources(written: &Spanned<Sources>) -> Result<Vec<TextSource>, ConfigError> {
    let sources = &written.get_ref().0;
    if sources.is_empty() {
        return Err(ConfigError::new(written.span(), "at least one source is expected"));
    }
    let twice = sources.iter().enumerate().any(|(at, source)| sources[..at].contains(source));
    if twice {
        return Err(ConfigError::new(written.span(), "a source is there twice"));
    }
    Ok(sources.clone())
}

/// Returns the names without one dialect, as TOML strings. If `defaults` stands for this dialect, the others that it
/// stands for take its place.
fn names_without(left_out: &Dialect, names: &[Spanned<String>]) -> String {
    let is_default = dialect::defaults().any(|default| default == *left_out);
    let mut kept: Vec<String> = Vec::new();
    for name in names.iter().map(|name| &**name.get_ref()) {
        if name == DEFAULT_DIALECTS && is_default {
            kept.extend(dialect::defaults().map(|default| default.name().to_owned()));
        } else {
            kept.push(name.to_owned());
        }
    }
    kept.retain(|name| name != left_out.name());
    kept.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// The dialects of some names.
fn chosen(names: &[Spanned<String>], own: &[Dialect]) -> Result<Vec<Dialect>, ConfigError> {
    let mut chosen: Vec<Dialect> = Vec::new();
    for name in names {
        let named = dialects([&**name.get_ref()], own);
        for dialect in named.map_err(|what| ConfigError::new(name.span(), what))? {
            // A dialect may be named by `defaults` and by its own name.
            if chosen.iter().any(|known| known.name() == dialect.name()) {
                continue;
            }
            let twice = chosen.iter().find_map(|known| {
                dialect.methods().find(|method| known.claims(method)).map(|m| (m, known))
            });
            if let Some((method, other)) = twice {
                // The author of a file probably wants the dialect of the file, not the one that is built in.
                let is_built_in = matches!(dialect, Dialect::BuiltIn(_));
                let left_out = if is_built_in { &dialect } else { other };
                let what = format!(
                    "{:?} claims the method {method:?}, which {:?} claims already; leave one of the two out, such as \
                     dialects = [{}]",
                    dialect.name(),
                    other.name(),
                    names_without(left_out, names)
                );
                return Err(ConfigError::new(name.span(), what));
            }
            chosen.push(dialect);
        }
    }
    Ok(chosen)
}
