//! Tables of settings as they are written: a route, the defaults of a route file, a single tool.
//!
//! The keys of settings come from their declarations. serde cannot flatten one table into another that
//! refuses unknown keys, so these tables are read by hand.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::diagnostics::{ConfigError, reject};
use super::file::{HeadersSection, LifecycleSection};
use super::key_groups::GROUPS;
use super::presets::Preset;
use super::route::{HttpUpstream, Route, StdioUpstream};
use crate::config::settings::{Setting, SettingChange, SettingScope, Settings};
use crate::config::values::text::{Endpoint, OneOf, PublicUrl, RoutePath, Spelling, TextValue};
use crate::progress::{CallPolicy, Policy};

/// The value of a key, if the table has the key.
pub(super) fn value_of<S: Spelling>(key: &Option<TextValue<S>>) -> Option<S::Value> {
    key.as_ref().map(|text| text.0.clone())
}

/// A value and its place in the text.
pub(super) type FileValue<'a> = Spanned<DeValue<'a>>;

/// A key and its place in the text.
pub(super) type FileKey<'a> = Spanned<Cow<'a, str>>;

/// A reader of one key of a table.
type KeyReader<'r, 'a> = dyn FnMut(&FileKey<'a>, FileValue<'a>) -> Result<(), ConfigError> + 'r;

/// Reads a value as a type.
pub(super) fn read<T: DeserializeOwned>(value: FileValue<'_>) -> Result<T, ConfigError> {
    let span = value.span();
    T::deserialize(ValueDeserializer::from(value)).map_err(|error| ConfigError::within(span, error))
}

/// Reads a table: hands each key to `read_key`, and refuses keys that are not known.
pub(super) fn read_table<'a>(
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

/// A table of the settings of one scope.
pub(super) struct ScopeTable<S> {
    changes: Vec<SettingChange<S>>,
    /// The places of each key and of its value, also within inner tables.
    spans: BTreeMap<String, (Range<usize>, Range<usize>)>,
    /// The place of the table, where it was read as a whole.
    whole: Range<usize>,
}

impl<S> Default for ScopeTable<S> {
    fn default() -> Self {
        Self { changes: Vec::new(), spans: BTreeMap::new(), whole: 0..0 }
    }
}

impl<S: SettingScope> ScopeTable<S> {
    /// The keys of the table.
    pub(super) fn keys() -> Vec<&'static str> {
        S::SETTINGS.iter().map(|setting| setting.key).collect()
    }

    /// Reads a table that holds nothing else.
    pub(super) fn read(table: FileValue<'_>, expected: &str) -> Result<Self, ConfigError> {
        let mut scope = Self { whole: table.span(), ..Self::default() };
        read_table(table, expected, Some(&Self::keys()), &mut |key, value| {
            scope.read_key(key, value).map(|_| ())
        })?;
        Ok(scope)
    }

    /// Reads the value of a key, if that is one of a setting of this scope.
    pub(super) fn read_key(
        &mut self,
        key: &FileKey<'_>,
        value: FileValue<'_>,
    ) -> Result<bool, ConfigError> {
        let Some(setting) = Setting::<S>::named(key.get_ref()) else { return Ok(false) };
        self.keep_span(key.get_ref(), key.span(), &value);
        self.changes.push(change(setting, value)?);
        Ok(true)
    }

    fn keep_span(&mut self, path: &str, key: Range<usize>, value: &FileValue<'_>) {
        self.spans.insert(path.to_owned(), (key, value.span()));
        if let DeValue::Table(table) = value.get_ref() {
            for (key, value) in table {
                self.keep_span(&format!("{path}.{}", key.get_ref()), key.span(), value);
            }
        }
    }

    /// The place of the value of a key, if the table has the key: `tls`, `tls.key`.
    pub(super) fn place(&self, key: &str) -> Option<Range<usize>> {
        self.spans.get(key).map(|(_, value)| value.clone())
    }

    /// The place of the table.
    pub(super) fn whole(&self) -> Range<usize> {
        self.whole.clone()
    }

    /// The place of a key.
    pub(super) fn key_span(&self, key: &str) -> Range<usize> {
        self.spans.get(key).map(|(key, _)| key.clone()).unwrap_or_default()
    }

    /// The scope with these settings over those of `scope`.
    pub(super) fn over(&self, mut scope: S) -> S {
        self.changes.iter().for_each(|change| change.apply(&mut scope));
        scope
    }
}

/// The server behind a route.
#[derive(Default)]
pub(super) struct UpstreamSection {
    /// The place of the table.
    pub(super) span: Range<usize>,
    pub(super) demo: Option<Spanned<bool>>,
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) url: Option<Spanned<TextValue<Endpoint>>>,
    pub(super) sse: Option<Spanned<TextValue<Endpoint>>>,
    pub(super) lifecycle: Option<Spanned<LifecycleSection>>,
    pub(super) stdio: ScopeTable<StdioUpstream>,
    pub(super) http: ScopeTable<HttpUpstream>,
}

impl UpstreamSection {
    fn read(table: FileValue<'_>) -> Result<Self, ConfigError> {
        let mut upstream = Self { span: table.span(), ..Self::default() };
        let (stdio, http) =
            (ScopeTable::<StdioUpstream>::keys(), ScopeTable::<HttpUpstream>::keys());
        let known =
            [&["demo", "command"], &*stdio, &["url", "sse"], &*http, &["lifecycle"]].concat();
        let expected = "a table such as { command = [\"server\"] }";
        read_table(table, expected, Some(&known), &mut |key, value| {
            match &**key.get_ref() {
                "demo" => upstream.demo = Some(read(value)?),
                "command" => upstream.command = Some(read(value)?),
                "url" => upstream.url = Some(read(value)?),
                "sse" => upstream.sse = Some(read(value)?),
                "lifecycle" => upstream.lifecycle = Some(read(value)?),
                name if http.contains(&name) => drop(upstream.http.read_key(key, value)?),
                _ => drop(upstream.stdio.read_key(key, value)?),
            }
            Ok(())
        })?;
        Ok(upstream)
    }
}

/// The key of dialects, whose names are looked up when the whole file is read.
const DIALECTS: &str = "dialects";

/// The key of the settings of single tools.
const TOOLS: &str = "tools";

/// A kind of tables that hold settings.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum TableKind {
    Tool,
    Defaults,
    Route,
}

impl TableKind {
    /// The keys that are no settings.
    const fn other_keys(self) -> &'static [&'static str] {
        match self {
            Self::Tool => &[],
            Self::Defaults => &[TOOLS],
            Self::Route => {
                &["path", "public_url", "upstream", "preset", "opaque", "headers", TOOLS]
            }
        }
    }

    /// The keys of settings: of a group, or outside of all groups where it is "".
    fn keys(self, group: &str) -> Vec<&'static str> {
        fn of<S: SettingScope>() -> impl Iterator<Item = &'static str> {
            S::SETTINGS.iter().map(|setting| setting.key)
        }
        let of_route = of::<Policy>().chain(of::<Route>()).filter(|_| self != Self::Tool);
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
}

/// The settings of a table.
#[derive(Default)]
pub(super) struct SettingsTable {
    dialects: Option<Vec<Spanned<String>>>,
    connection: Vec<SettingChange<Route>>,
    route: Vec<SettingChange<Policy>>,
    call: Vec<SettingChange<CallPolicy>>,
    /// The settings of single tools, by name.
    tools: BTreeMap<String, Self>,
}

impl SettingsTable {
    /// Reads `[defaults]`.
    pub(super) fn defaults(table: FileValue<'_>) -> Result<Self, ConfigError> {
        Self::read(table, TableKind::Defaults, &mut |_, _| Ok(()))
    }

    /// Reads a table; `read_other`: its keys that are no settings.
    fn read<'a>(
        table: FileValue<'a>,
        kind: TableKind,
        read_other: &mut dyn FnMut(&str, FileValue<'a>) -> Result<(), ConfigError>,
    ) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        let known = [kind.other_keys(), &kind.keys("")].concat();
        read_table(table, "a table", Some(&known), &mut |key, value| {
            let key = &**key.get_ref();
            if key == TOOLS {
                read_table(value, "a table", None, &mut |name, tool| {
                    let tool = Self::read(tool, TableKind::Tool, &mut |_, _| Ok(()))?;
                    settings.tools.insert(name.get_ref().to_string(), tool);
                    Ok(())
                })
            } else if let Some(group) = GROUPS.iter().find(|group| group.name == key) {
                let known = kind.keys(key);
                let switch = group.switch.and_then(Setting::<CallPolicy>::named);
                let switched = switch.and_then(|switch| switch.read_flag(&["on".to_owned()]).ok());
                settings.call.extend(switched);
                read_table(value, group.expected, Some(&known), &mut |key, value| {
                    settings.read_setting(&format!("{}.{}", group.name, key.get_ref()), value)
                })
            } else if kind.other_keys().contains(&key) {
                read_other(key, value)
            } else {
                settings.read_setting(key, value)
            }
        })?;
        Ok(settings)
    }

    /// Reads the value of a key that is known to be a setting.
    fn read_setting(&mut self, key: &str, value: FileValue<'_>) -> Result<(), ConfigError> {
        if key == DIALECTS {
            self.dialects = Some(read(value)?);
        } else if let Some(setting) = Setting::named(key) {
            self.call.push(change(setting, value)?);
        } else if let Some(setting) = Setting::named(key) {
            self.route.push(change(setting, value)?);
        } else if let Some(setting) = Setting::named(key) {
            self.connection.push(change(setting, value)?);
        }
        Ok(())
    }

    /// The settings of the progress; the dialects are looked up elsewhere.
    pub(super) fn settings(&self) -> Settings {
        let tools = self.tools.iter().map(|(name, tool)| (name.clone(), tool.call.clone()));
        Settings { route: self.route.clone(), call: self.call.clone(), tools: tools.collect() }
    }

    /// The names of dialects: the table's own, and those of single tools.
    pub(super) fn dialects(&self) -> impl Iterator<Item = (Option<&str>, &[Spanned<String>])> {
        let tools = self.tools.iter().map(|(name, tool)| (Some(&**name), &tool.dialects));
        let all = std::iter::once((None, &self.dialects)).chain(tools);
        all.filter_map(|(tool, names)| Some((tool, names.as_deref()?)))
    }

    /// Lays the settings of connections and limits over `route`.
    pub(super) fn merge_into(&self, route: &mut Route) {
        self.connection.iter().for_each(|change| change.apply(route));
    }
}

fn change<S: SettingScope>(
    setting: &Setting<S>,
    value: FileValue<'_>,
) -> Result<SettingChange<S>, ConfigError> {
    let span = value.span();
    let change = setting.read_value(ValueDeserializer::from(value));
    change.map_err(|error| ConfigError::within(span, error))
}

/// A server, its path for clients, and the treatment of its progress.
#[derive(Default)]
pub(super) struct RouteSection {
    /// The place of the table.
    pub(super) span: Range<usize>,
    pub(super) path: Option<Spanned<TextValue<RoutePath>>>,
    pub(super) public_url: Option<TextValue<PublicUrl>>,
    pub(super) upstream: Option<UpstreamSection>,
    pub(super) preset: Option<Spanned<TextValue<OneOf<Preset>>>>,
    pub(super) opaque: Option<Spanned<bool>>,
    pub(super) headers: HeadersSection,
    pub(super) settings: SettingsTable,
}

impl RouteSection {
    /// Reads one of `[[route]]`.
    pub(super) fn read(table: FileValue<'_>) -> Result<Self, ConfigError> {
        let mut route = Self { span: table.span(), ..Self::default() };
        route.settings = SettingsTable::read(table, TableKind::Route, &mut |key, value| {
            match key {
                "path" => route.path = Some(read(value)?),
                "public_url" => route.public_url = Some(read(value)?),
                "upstream" => route.upstream = Some(UpstreamSection::read(value)?),
                "preset" => route.preset = Some(read(value)?),
                "opaque" => route.opaque = Some(read(value)?),
                _ => route.headers = read(value)?,
            }
            Ok(())
        })?;
        Ok(route)
    }
}
