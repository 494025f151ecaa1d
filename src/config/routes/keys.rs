//! Tables of settings as a file has them: a route, the defaults of a route file, a listener, a server.
//!
//! The keys of settings come from their declarations. serde cannot flatten one table into another that refuses unknown
//! keys, so the code here reads these tables key by key.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::file::{HeadersSection, LifecycleSection};
use super::presets::Preset;
use super::route::{HttpUpstream, Route, StdioUpstream};
use crate::config::settings::{Setting, SettingChange, SettingScope};
use crate::config::values::Word;
use crate::config::values::text::{Endpoint, PublicUrl, RoutePath};
use crate::policy_file::diagnostics::ConfigError;
use crate::policy_file::table::{
    FileKey, FileValue, OtherKeys, SettingsTable, change, read, read_table,
};
use crate::policy_file::text::{OneOf, TextValue};

/// A table of the settings of one scope.
pub(super) struct ScopeTable<S> {
    changes: Vec<SettingChange<S>>,
    /// The places in the file of each key and of its value, also within inner tables.
    spans: BTreeMap<String, (Range<usize>, Range<usize>)>,
    /// The place in the file of the table, if it was read as a whole.
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

    /// Reads a table that has only settings of this scope.
    pub(super) fn read(table: FileValue<'_>, expected: &str) -> Result<Self, ConfigError> {
        let mut scope = Self { whole: table.span(), ..Self::default() };
        read_table(table, expected, Some(&Self::keys()), &mut |key, value| {
            scope.read_key(key, value).map(|_| ())
        })?;
        Ok(scope)
    }

    /// Reads the value of a key, if the key is a setting of this scope.
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
        // Errors of inner keys (`tls.key`) are found after the table has been read, when only the key's path is known,
        // so the places are kept now.
        if let DeValue::Table(table) = value.get_ref() {
            for (key, value) in table {
                self.keep_span(&format!("{path}.{}", key.get_ref()), key.span(), value);
            }
        }
    }

    /// Returns the place of a key's value (`tls`, `tls.key`), if the table has the key.
    pub(super) fn place(&self, key: &str) -> Option<Range<usize>> {
        self.spans.get(key).map(|(_, value)| value.clone())
    }

    /// Returns the place of the table.
    pub(super) fn whole(&self) -> Range<usize> {
        self.whole.clone()
    }

    /// Returns the place of a key.
    pub(super) fn key_span(&self, key: &str) -> Range<usize> {
        self.spans.get(key).map(|(key, _)| key.clone()).unwrap_or_default()
    }

    /// Returns `scope` changed by these settings.
    pub(super) fn over(&self, mut scope: S) -> S {
        self.changes.iter().for_each(|change| change.apply(&mut scope));
        scope
    }
}

/// A key of `upstream` that has no effect. Files of earlier versions may have the key, so it is accepted with its
/// former values, and `check` and `serve` warn of it.
pub(super) const RETIRED: &str = "engine";

/// A value of the retired key: the part that spoke HTTP/1.1 to the server in earlier versions.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct RetiredEngine;

impl Word for RetiredEngine {
    const WORDS: &'static [(&'static str, Self)] = &[("hyper", Self), ("milepost", Self)];
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
    pub(super) engine: Option<Spanned<TextValue<OneOf<RetiredEngine>>>>,
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
        read_table(table, expected, None, &mut |key, value| {
            match &**key.get_ref() {
                // Not in `known`, so that no error suggests the key.
                RETIRED => upstream.engine = Some(read(value)?),
                "demo" => upstream.demo = Some(read(value)?),
                "command" => upstream.command = Some(read(value)?),
                "url" => upstream.url = Some(read(value)?),
                "sse" => upstream.sse = Some(read(value)?),
                "lifecycle" => upstream.lifecycle = Some(read(value)?),
                name if http.contains(&name) => drop(upstream.http.read_key(key, value)?),
                name if stdio.contains(&name) => drop(upstream.stdio.read_key(key, value)?),
                name => return Err(ConfigError::unknown_key(key.span(), name, &known)),
            }
            Ok(())
        })?;
        Ok(upstream)
    }
}

/// The settings of one route or of all routes: those of progress, and those of connections.
#[derive(Default)]
pub(super) struct RouteSettings {
    pub(super) progress: SettingsTable,
    connection: Vec<SettingChange<Route>>,
}

impl RouteSettings {
    /// Reads `[defaults]`.
    pub(super) fn defaults(table: FileValue<'_>) -> Result<Self, ConfigError> {
        Self::read(table, &[], &mut |_, _| Ok(()))
    }

    /// Reads a table. `others` are the keys that are not settings; `read_other` reads them.
    fn read<'a>(
        table: FileValue<'a>,
        others: &[&str],
        read_other: &mut dyn FnMut(&str, FileValue<'a>) -> Result<(), ConfigError>,
    ) -> Result<Self, ConfigError> {
        let mut connection = Vec::new();
        let of_connections: Vec<&str> = Route::SETTINGS.iter().map(|setting| setting.key).collect();
        let mut read = |key: &FileKey<'a>, value: FileValue<'a>| {
            match Setting::<Route>::named(key.get_ref()) {
                Some(setting) => connection.push(change(setting, value)?),
                None => read_other(key.get_ref(), value)?,
            }
            Ok(())
        };
        let others = OtherKeys { before: others, after: &of_connections, read: &mut read };
        let progress = SettingsTable::read(table, others)?;
        Ok(Self { progress, connection })
    }

    /// Changes `route` by the settings of connections and limits.
    pub(super) fn merge_into(&self, route: &mut Route) {
        self.connection.iter().for_each(|change| change.apply(route));
    }
}

/// The keys of a route that are not settings, besides `tools`.
const KEYS_OF_ROUTE: [&str; 6] = ["path", "public_url", "upstream", "preset", "opaque", "headers"];

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
    pub(super) settings: RouteSettings,
}

impl RouteSection {
    /// Reads one `[[route]]`.
    pub(super) fn read(table: FileValue<'_>) -> Result<Self, ConfigError> {
        let mut route = Self { span: table.span(), ..Self::default() };
        route.settings = RouteSettings::read(table, &KEYS_OF_ROUTE, &mut |key, value| {
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
