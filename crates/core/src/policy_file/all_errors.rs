//! Finds all errors of a settings file: takes out the part with the first error and reads the rest again, until no
//! error is left.
//!
//! An error that exists only because a part was taken out is not reported. For example, `path` is not missing if a
//! wrong `path` was taken out.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::diagnostics::ConfigError;
use super::syntax;
use crate::protocol::order;

/// Limit of the parts of a file that are taken out. If a file has more errors, correcting these shows the others.
const ROUNDS_MAX: usize = 100;

/// A reader of the table of a file.
pub type TableReader<'r, T> = &'r dyn Fn(Spanned<DeTable<'_>>) -> Result<T, ConfigError>;

/// Rewords an error at a key.
pub type RewordError<'r> = &'r dyn Fn(Option<&str>, String) -> String;

/// Reads the text of a file with `read`. `reword` makes an error readable for people.
///
/// # Errors
/// All errors, at least one, in the order of the file.
pub fn read<T>(
    text: &str,
    read: TableReader<'_, T>,
    reword: RewordError<'_>,
) -> Result<T, Vec<ConfigError>> {
    let table = match DeTable::parse_recoverable(text) {
        (table, errors) if errors.is_empty() => table,
        // A text that is not TOML has no values to check.
        (_, errors) => return Err(in_order(syntax_errors(text, errors))),
    };
    match read(table.clone()) {
        Ok(meaning) => Ok(meaning),
        Err(first) => Err(in_order(collect(&table, read, reword, first))),
    }
}

/// Returns at most one error for each line, because one mistake has several consequences on its line.
fn syntax_errors(text: &str, errors: Vec<toml::de::Error>) -> Vec<ConfigError> {
    let mut lines = Vec::new();
    let errors = errors.into_iter().map(|error| syntax::reword(text, error.into()));
    let is_new = |error: &ConfigError| {
        let line = text.get(..error.at).unwrap_or(text).matches('\n').count();
        let is_new = !lines.contains(&line);
        lines.push(line);
        is_new
    };
    errors.filter(is_new).collect()
}

fn in_order(mut errors: Vec<ConfigError>) -> Vec<ConfigError> {
    order::sort_by_key(&mut errors, |error| error.at);
    errors
}

fn collect<T>(
    table: &Spanned<DeTable<'_>>,
    read: TableReader<'_, T>,
    reword: RewordError<'_>,
    first: ConfigError,
) -> Vec<ConfigError> {
    let (mut found, mut parts): (Vec<ConfigError>, Vec<TakenPart>) = (Vec::new(), Vec::new());
    let mut error = first;
    for _ in 0..ROUNDS_MAX {
        let place = place_at(table.get_ref(), error.at);
        let part = place.map(|steps| TakenPart::new(steps, &error.what, reword));
        let is_consequence = part
            .as_ref()
            .is_some_and(|part| parts.iter().any(|gone| gone.explains(part, &error.what)));
        if !is_consequence {
            found.push(error);
        }
        // An error at a part that is already removed would be reported again in every round.
        let Some(part) = part.filter(|part| parts.iter().all(|gone| gone.steps != part.steps))
        else {
            break;
        };
        parts.push(part);
        match read(without(table.clone(), &parts)) {
            Ok(_) => break,
            Err(next) => error = next,
        }
    }
    found
}

/// A step of the path to a value in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TomlStep {
    Key(String),
    Element(usize),
}

/// A part of a file that was taken out because of an error.
#[derive(Debug)]
struct TakenPart {
    steps: Vec<TomlStep>,
    /// The names by which other errors may refer to the removed part.
    names: Vec<String>,
}

impl TakenPart {
    fn new(mut steps: Vec<TomlStep>, what: &str, reword: RewordError<'_>) -> Self {
        // A list that loses its only element would be an error itself, except for a list of dialects, which may be
        // empty.
        while steps.len() > 2
            && matches!(&steps[..], [.., TomlStep::Key(key), TomlStep::Element(_)] if key != "dialects")
        {
            steps.pop();
        }
        let key = steps.iter().rev().find_map(|step| match step {
            TomlStep::Key(key) => Some(key.clone()),
            TomlStep::Element(_) => None,
        });
        let what = reword(key.as_deref(), what.to_owned());
        // The key that an unknown key was probably meant to be, or the table where the key belongs.
        let meant =
            ["did you mean ", "it belongs to "].iter().find_map(|word| what.split_once(word));
        let meant = meant.iter().flat_map(|(_, rest)| rest.split('`').skip(1).step_by(2));
        Self { names: key.into_iter().chain(meant.map(str::to_owned)).collect(), steps }
    }

    /// Returns the table of the file that the error belongs to: `[server]`, or one `[[route]]`.
    fn section(&self) -> &[TomlStep] {
        let depth = if matches!(self.steps.get(1), Some(TomlStep::Element(_))) { 2 } else { 1 };
        self.steps.get(..depth).unwrap_or(&self.steps)
    }

    fn has_key(&self, name: &str) -> bool {
        self.steps.iter().any(|step| matches!(step, TomlStep::Key(key) if key == name))
    }

    /// Whether the error at `other` exists only because this part was taken out.
    fn explains(&self, other: &Self, what: &str) -> bool {
        // With the faulty `[[dialect]]` removed, `dialects` names a dialect that does not exist: a
        // consequence, not a second fault.
        let describes = self.has_key("dialect") || self.has_key("preset");
        if describes && other.has_key("dialects") {
            return true;
        }
        let is_named = self.names.iter().any(|name| what.contains(&format!("`{name}`")));
        !what.starts_with("unknown key") && self.section() == other.section() && is_named
    }
}

/// Returns the path to the narrowest part of the file that contains an offset.
fn place_at(table: &DeTable<'_>, at: usize) -> Option<Vec<TomlStep>> {
    let mut narrowest = None;
    search(table, &mut Vec::new(), at, &mut narrowest);
    narrowest.map(|(_, steps)| steps)
}

type NarrowestSteps = Option<(usize, Vec<TomlStep>)>;

fn consider(
    span: std::ops::Range<usize>,
    at: usize,
    steps: &[TomlStep],
    narrowest: &mut NarrowestSteps,
) {
    if span.contains(&at) && narrowest.as_ref().is_none_or(|(width, _)| span.len() <= *width) {
        *narrowest = Some((span.len(), steps.to_vec()));
    }
}

fn search(
    table: &DeTable<'_>,
    steps: &mut Vec<TomlStep>,
    at: usize,
    narrowest: &mut NarrowestSteps,
) {
    for (key, value) in table {
        steps.push(TomlStep::Key(key.get_ref().to_string()));
        consider(key.span(), at, steps, narrowest);
        search_value(value, steps, at, narrowest);
        steps.pop();
    }
}

fn search_value(
    value: &Spanned<DeValue<'_>>,
    steps: &mut Vec<TomlStep>,
    at: usize,
    narrowest: &mut NarrowestSteps,
) {
    consider(value.span(), at, steps, narrowest);
    match value.get_ref() {
        DeValue::Table(table) => search(table, steps, at, narrowest),
        DeValue::Array(elements) => {
            for (number, element) in elements.iter().enumerate() {
                steps.push(TomlStep::Element(number));
                search_value(element, steps, at, narrowest);
                steps.pop();
            }
        }
        _ => {}
    }
}

/// Returns the table without `parts`.
fn without<'a>(mut table: Spanned<DeTable<'a>>, parts: &[TakenPart]) -> Spanned<DeTable<'a>> {
    let mut ways: Vec<&[TomlStep]> = parts.iter().map(|part| &*part.steps).collect();
    // Later elements first, because removing an element changes the numbers of the following ones.
    order::sort_by(&mut ways, |a, b| b.cmp(a));
    for way in ways {
        remove(table.get_mut(), way);
    }
    table
}

fn remove(table: &mut DeTable<'_>, way: &[TomlStep]) {
    let Some((TomlStep::Key(name), rest)) = way.split_first() else { return };
    if rest.is_empty() {
        table.remove(name.as_str());
    } else if let Some((_, value)) =
        table.iter_mut().find(|(key, _)| key.get_ref() == name.as_str())
    {
        remove_within(value.get_mut(), rest);
    }
}

fn remove_within(value: &mut DeValue<'_>, way: &[TomlStep]) {
    match (value, way) {
        (DeValue::Table(table), way) => remove(table, way),
        (DeValue::Array(elements), [TomlStep::Element(number)]) if *number < elements.len() => {
            let mut kept = DeArray::new();
            let others = elements.iter().enumerate().filter(|(at, _)| at != number);
            others.for_each(|(_, element)| kept.push(element.clone()));
            *elements = kept;
        }
        (DeValue::Array(elements), [TomlStep::Element(number), rest @ ..]) => {
            if let Some(element) = elements.get_mut(*number) {
                remove_within(element.get_mut(), rest);
            }
        }
        _ => {}
    }
}
