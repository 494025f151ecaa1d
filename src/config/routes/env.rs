//! `${NAME}` in the strings of a route file: references to environment variables.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::values::nearest;
use crate::policy_file::diagnostics::ConfigError;
use crate::policy_file::variables::fill;

/// The variables that a route file can name.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Returns the variables of this process. Variables that are not valid Unicode are left out, because the file is
    /// Unicode and cannot contain their values.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let mut variables = BTreeMap::new();
        variables.extend(std::env::vars_os().filter_map(text));
        Self(variables)
    }

    /// Returns `text` with the values of its variables.
    ///
    /// # Errors
    /// If a variable is not set, or a `${` does not begin a variable.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        fill(text, &|name| look_up(name, self))
            .map(|filled| filled.text)
            .map_err(|fault| fault.what)
    }

    /// The value of a variable.
    ///
    /// # Errors
    /// The variable is not set.
    pub fn get(&self, name: &str) -> Result<&str, String> {
        look_up(name, self)
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// The strings that contain values of the environment, each with its text in the file, which is shown instead.
#[derive(Clone, Default)]
pub(super) struct EnvValues {
    written: BTreeMap<String, String>,
    /// The text in the file of each such string, by the offset where the string begins.
    by_offset: BTreeMap<usize, String>,
    /// The variables that the file uses for secrets.
    secrets: BTreeSet<String>,
    /// The variables in `upstream.env` of each route, by the index of the route.
    servers: BTreeMap<usize, BTreeSet<String>>,
}

impl EnvValues {
    /// Returns `text` as the file has it (`${NAME}`), if it contains a value of the environment.
    pub(super) fn written(&self, text: &str) -> Option<&str> {
        self.written.get(text).map(String::as_str)
    }

    /// Returns the variables that the server of a route must not get: those of secrets, and those of other servers.
    pub(super) fn private_of(&self, route: usize) -> BTreeSet<String> {
        let others = self.servers.iter().filter(|(other, _)| **other != route);
        let all = self.secrets.iter().chain(others.flat_map(|(_, names)| names));
        let own = self.servers.get(&route);
        // A variable that the route passes to its server on purpose is not hidden from that server.
        let is_own = |name: &&String| own.is_some_and(|own| own.contains(*name));
        all.filter(|name| !is_own(name)).cloned().collect()
    }

    /// Notes whether the variables of a string are secrets of Milepost or for a server.
    fn note(&mut self, place: &VariableLocation, names: Vec<String>) {
        match place.kind {
            VariableUse::Server => {
                let route = place.route.unwrap_or_default();
                self.servers.entry(route).or_default().extend(names);
            }
            VariableUse::Secret => self.secrets.extend(names),
            VariableUse::Other => {}
        }
    }

    /// Notes that `other` is another spelling of `text`, so that its variables are shown in its place too.
    pub(super) fn respelled(&mut self, text: &str, other: &str) {
        if let Some(written) = self.written.get(text).cloned() {
            self.written.insert(other.to_owned(), written);
        }
    }

    /// Replaces values of the environment in an error by their text in the file.
    pub(super) fn hide(&self, wrong: ConfigError) -> ConfigError {
        let Some(text) = self.by_offset.get(&wrong.at) else { return wrong };
        let written = self.written.get(text).map_or("", String::as_str);
        let what = wrong.what.replace(&format!("{text:?}"), &format!("{written:?}"));
        ConfigError { what, ..wrong }
    }
}

/// Shows which strings contain such values, but not the values.
impl std::fmt::Debug for EnvValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.written.values()).finish()
    }
}

/// The location of a value in the file.
#[derive(Debug, Clone, Default)]
struct VariableLocation {
    /// The keys that lead to the value, joined by dots.
    path: String,
    /// The index of the route, from 0.
    route: Option<usize>,
    kind: VariableUse,
}

/// Who uses the variables of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum VariableUse {
    /// For Milepost, and not a secret.
    #[default]
    Other,
    /// For Milepost only, because the value is a secret.
    Secret,
    /// For the server of a route.
    Server,
}

impl VariableLocation {
    fn below(&self, key: &str) -> Self {
        let path = match &*self.path {
            "" => key.to_owned(),
            above => format!("{above}.{key}"),
        };
        let kind = match self.kind {
            VariableUse::Other if path == "route.upstream.env" => VariableUse::Server,
            VariableUse::Other if path == "route.headers" || ["bearer", "key"].contains(&key) => {
                VariableUse::Secret
            }
            kind => kind,
        };
        Self { path, route: self.route, kind }
    }

    fn element(&self, number: usize) -> Self {
        let route = if self.path == "route" { Some(number) } else { self.route };
        Self { route, ..self.clone() }
    }
}

/// Puts variables of the environment into every string of `table`, which was read from `text`.
pub(super) fn expand(
    table: &mut DeTable<'_>,
    text: &str,
    environment: &Environment,
) -> Result<EnvValues, ConfigError> {
    let mut env_values = EnvValues::default();
    let top = VariableLocation::default();
    // A list instead of a recursion, so that the depth of a file cannot overflow the stack.
    let mut unread: Vec<(VariableLocation, &mut Spanned<DeValue<'_>>)> =
        table.iter_mut().map(|(key, value)| (top.below(key.get_ref()), value)).collect();
    while let Some((place, value)) = unread.pop() {
        let span = value.span();
        match value.get_mut() {
            DeValue::Table(table) => {
                let values = table.iter_mut();
                unread.extend(values.map(|(key, value)| (place.below(key.get_ref()), value)));
            }
            DeValue::Array(elements) => {
                let elements = elements.iter_mut().enumerate();
                unread.extend(elements.map(|(number, value)| (place.element(number), value)));
            }
            DeValue::String(written) if written.contains("${") => {
                let expanded = fill(written, &|name| look_up(name, environment))
                    .map_err(|fault| fault.at(text, span.clone()))?;
                // An empty value is not noted: every empty string would match it, and it needs no hiding.
                let has_variables = !expanded.names.is_empty();
                env_values.note(&place, expanded.names);
                if has_variables && !expanded.text.is_empty() {
                    env_values.written.insert(expanded.text.clone(), written.clone().into_owned());
                    env_values.by_offset.insert(span.start, expanded.text.clone());
                }
                *written = Cow::Owned(expanded.text);
            }
            _ => {}
        }
    }
    Ok(env_values)
}

fn look_up<'a>(name: &str, environment: &'a Environment) -> Result<&'a str, String> {
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        return Err(format!(
            "{name:?} is no name of a variable; what is not one is written `$${{`"
        ));
    }
    if let Some(value) = environment.0.get(name) {
        return Ok(value);
    }
    Err(match nearest(name, environment.0.keys().map(String::as_str)) {
        Some(near) => {
            format!("the environment variable `{name}` is not set; did you mean `{near}`?")
        }
        None => format!("the environment variable `{name}` is not set"),
    })
}
