//! Settings tables of a file: for all tools, and for a single tool.
//!
//! The keys of settings come from their declarations. serde cannot flatten one table into another that refuses unknown
//! keys, so these tables are read by hand.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::diagnostics::{ConfigError, reject};
use super::key_groups::GROUPS;
use super::setting::{Setting, SettingChange, SettingScope, Settings};
use crate::progress::{CallPolicy, Policy};

/// A value and its place in the text.
pub type FileValue<'a> = Spanned<DeValue<'a>>;

/// A key and its place in the text.
pub type FileKey<'a> = Spanned<Cow<'a, str>>;

/// Reads the value of one key of a table.
pub type KeyReader<'r, 'a> = dyn FnMut(&FileKey<'a>, FileValue<'a>) -> Result<(), ConfigError> + 'r;

/// Reads a value as a type.
///
/// # Errors
/// The fault of the value.
pub fn read<T: DeserializeOwned>(value: FileValue<'_>) -> Result<T, ConfigError> {
    let span = value.span();
    T::deserialize(ValueDeserializer::from(value)).map_err(|error| ConfigError::within(span, error))
}

/// Reads a table: passes each key to `read_key`, and refuses unknown keys.
///
/// # Errors
/// If the value is not a table, a key is not known, or `read_key` refuses a key.
pub fn read_table<'a>(
    table: FileValue<'a>,
    expected: &str,
    known: Option<&[&str]>,
    read_key: &mut KeyReader<'_, 'a>,
) -> Result<(), ConfigError> {
    let DeValue::Table(keys) = table.get_ref() else { return Err(reject(table, expected)) };
    for (key, value) in keys.clone() {
        if let Some(known) = known.filter(|known| !known.contains(&&**key.get_ref())) {
            return Err(ConfigError::unknown_key(key.span(), key.get_ref(), known));
        }
        read_key(&key, value)?;
    }
    Ok(())
}

/// The key of the list of dialects, whose names are looked up after the whole file is read.
const DIALECTS: &str = "dialects";

/// The key of the tables for single tools.
const TOOLS: &str = "tools";

/// The keys of a table that are not progress settings.
pub struct OtherKeys<'r, 'a> {
    /// Keys that an error lists before the progress settings.
    pub before: &'r [&'r str],
    /// Keys that an error lists after the progress settings.
    pub after: &'r [&'r str],
    /// Reads the values of these keys.
    pub read: &'r mut KeyReader<'r, 'a>,
}

/// The calls that the settings of a table apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// All calls of a route.
    Route,
    /// The calls of one tool.
    Tool,
}

/// Returns the keys of the settings in a group, or of those outside all groups if `group` is empty.
fn keys(group: &str, kind: TableKind) -> Vec<&'static str> {
    fn of<S: SettingScope>() -> impl Iterator<Item = &'static str> {
        S::SETTINGS.iter().map(|setting| setting.key)
    }
    let of_route = of::<Policy>().filter(|_| kind == TableKind::Route);
    let keys = of::<CallPolicy>().chain(of_route);
    let mut keys: Vec<&str> = keys
        .filter_map(|key| match key.split_once('.') {
            Some((table, _)) if group.is_empty() => Some(table),
            Some((table, key)) => (table == group).then_some(key),
            None => group.is_empty().then_some(key),
        })
        .collect();
    keys.dedup();
    keys
}

/// The settings of a table.
#[derive(Default)]
pub struct SettingsTable {
    dialects: Option<Vec<Spanned<String>>>,
    route: Vec<SettingChange<Policy>>,
    call: Vec<SettingChange<CallPolicy>>,
    /// The settings of single tools, by name.
    tools: BTreeMap<String, Self>,
}

impl SettingsTable {
    /// Reads the table for all tools, which contains the tables of single tools and the keys `others`.
    ///
    /// # Errors
    /// If a key is not known, or its value is invalid.
    pub fn read<'a>(table: FileValue<'a>, others: OtherKeys<'_, 'a>) -> Result<Self, ConfigError> {
        let known = [others.before, &[TOOLS], &keys("", TableKind::Route), others.after].concat();
        let mut settings = Self::default();
        read_table(table, "a table", Some(&known), &mut |key, value| match &**key.get_ref() {
            TOOLS => read_table(value, "a table", None, &mut |name, tool| {
                settings.tools.insert(name.get_ref().to_string(), Self::of_tool(tool)?);
                Ok(())
            }),
            name if others.before.contains(&name) || others.after.contains(&name) => {
                (others.read)(key, value)
            }
            name => settings.read_key(name, value, TableKind::Route),
        })?;
        Ok(settings)
    }

    /// Reads the table of a single tool.
    fn of_tool(table: FileValue<'_>) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        read_table(table, "a table", Some(&keys("", TableKind::Tool)), &mut |key, value| {
            settings.read_key(key.get_ref(), value, TableKind::Tool)
        })?;
        Ok(settings)
    }

    /// Reads the value of a key that is known to be a setting or a group of settings.
    fn read_key(
        &mut self,
        key: &str,
        value: FileValue<'_>,
        kind: TableKind,
    ) -> Result<(), ConfigError> {
        let Some(group) = GROUPS.iter().find(|group| group.name == key) else {
            return self.read_setting(key, value);
        };
        let known = keys(key, kind);
        let switch = group.switch.and_then(Setting::<CallPolicy>::named);
        let switched = switch.and_then(|switch| switch.read_flag(&["on".to_owned()]).ok());
        // Applied before the keys of the table, so that `enabled = false` in the table takes precedence.
        self.call.extend(switched);
        read_table(value, group.expected, Some(&known), &mut |key, value| {
            self.read_setting(&format!("{}.{}", group.name, key.get_ref()), value)
        })
    }

    /// Reads the value of a key that is known to be a setting.
    fn read_setting(&mut self, key: &str, value: FileValue<'_>) -> Result<(), ConfigError> {
        // The names are looked up later, when every `[[dialect]]` of the file is known.
        if key == DIALECTS {
            self.dialects = Some(read(value)?);
        } else if let Some(setting) = Setting::named(key) {
            self.call.push(change(setting, value)?);
        } else if let Some(setting) = Setting::named(key) {
            self.route.push(change(setting, value)?);
        }
        Ok(())
    }

    /// Returns the progress settings, without the dialects: [`dialects::choose`](super::dialects::choose) looks them
    /// up.
    pub fn settings(&self) -> Settings {
        let tools = self.tools.iter().map(|(name, tool)| (name.clone(), tool.call.clone()));
        Settings { route: self.route.clone(), call: self.call.clone(), tools: tools.collect() }
    }

    /// Returns the dialect names of the table, and those of each single tool.
    pub fn dialects(&self) -> impl Iterator<Item = (Option<&str>, &[Spanned<String>])> {
        let tools = self.tools.iter().map(|(name, tool)| (Some(&**name), &tool.dialects));
        let all = std::iter::once((None, &self.dialects)).chain(tools);
        all.filter_map(|(tool, names)| Some((tool, names.as_deref()?)))
    }
}

/// Reads the value of a setting.
///
/// # Errors
/// The fault of the value.
pub fn change<S: SettingScope>(
    setting: &Setting<S>,
    value: FileValue<'_>,
) -> Result<SettingChange<S>, ConfigError> {
    let span = value.span();
    let change = setting.read_value(ValueDeserializer::from(value));
    change.map_err(|error| ConfigError::within(span, error))
}
