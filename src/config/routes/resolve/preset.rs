//! The meaning of a preset: settings that are laid under those of a route.

use std::path::Path;

use toml::de::DeTable;

use super::{dialects, upstream};
use crate::config::routes::diagnostics::{self, ConfigError};
use crate::config::routes::env::EnvValues;
use crate::config::routes::file::File;
use crate::config::routes::keys::RouteSection;
use crate::config::routes::presets::Preset;
use crate::config::routes::route::{Route, Upstream};
use crate::config::routes::route_file::RoutesError;
use crate::config::settings::Settings;
use crate::progress::Policy;
use crate::progress::dialect::Dialect;

/// A preset as it is meant.
pub struct PresetSettings {
    preset: Preset,
    section: RouteSection,
    settings: Settings,
    /// The dialects that the settings may name: those of the file, and those of the preset that the file
    /// does not have.
    dialects: Vec<Dialect>,
}

impl PresetSettings {
    /// Reads a preset, for the flags of a command; `own`: the dialects of a route file, which go before
    /// those of the preset.
    ///
    /// # Errors
    /// If the preset is not as it should be, which is a fault of ours.
    pub fn new(preset: Preset, own: &[Dialect]) -> Result<Self, RoutesError> {
        let path = || Path::new("preset").join(preset.name);
        Self::read(preset, own).map_err(|error| {
            let key = diagnostics::key_at(preset.lines, error.at);
            RoutesError::invalid(&path(), preset.lines, error, key)
        })
    }

    /// Reads a preset.
    pub(super) fn read(preset: Preset, own: &[Dialect]) -> Result<Self, ConfigError> {
        let file = File::read(DeTable::parse(preset.lines)?)?;
        let mut dialects = own.to_vec();
        for dialect in dialects::read(&file.dialect)? {
            if !dialects.iter().any(|known| known.name() == dialect.name()) {
                dialects.push(dialect);
            }
        }
        let section = file.route.into_iter().next().unwrap_or_default();
        let settings =
            dialects::choose(section.settings.settings(), section.settings.dialects(), &dialects)?;
        Ok(Self { preset, section, settings, dialects })
    }

    /// The dialects of the file, and those that come with the preset.
    pub fn dialects(&self) -> &[Dialect] {
        &self.dialects
    }

    /// Lays the settings of progress over `policy`.
    pub fn apply(&self, policy: &mut Policy) {
        self.settings.apply(policy);
    }

    /// Lays the settings of connections over `route`, and answers in the place of its server if the preset
    /// has that and the route does not say so itself.
    ///
    /// # Errors
    /// If the URLs do not fit the server's.
    pub fn merge_into(&self, route: &mut Route) -> Result<(), RoutesError> {
        self.connect(route).map_err(|error| {
            RoutesError::invalid(Path::new(self.preset.name), self.preset.lines, error, None)
        })
    }

    /// The same, for a route of a file.
    pub(super) fn lay_under(&self, route: &mut Route) -> Result<(), ConfigError> {
        route.preset = Some(self.preset);
        route.preset_settings = self.settings.clone();
        self.connect(route)
    }

    fn connect(&self, route: &mut Route) -> Result<(), ConfigError> {
        self.section.settings.merge_into(route);
        let lifecycle =
            self.section.upstream.as_ref().and_then(|upstream| upstream.lifecycle.as_ref());
        if let (Some(section), Upstream::Http(http)) = (lifecycle, &mut route.upstream)
            && let (Some(url), None) = (&http.url, &http.lifecycle)
        {
            let read = upstream::lifecycle(section.get_ref(), url, &mut EnvValues::default())?;
            http.lifecycle = Some(Box::new(read));
        }
        Ok(())
    }
}
