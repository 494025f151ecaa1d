//! Resolves presets: settings that apply if a route has no value of its own.

use toml::de::DeTable;

use super::upstream;
use crate::config::routes::env::EnvValues;
use crate::config::routes::file::File;
use crate::config::routes::keys::RouteSection;
use crate::config::routes::presets::Preset;
use crate::config::routes::route::{Route, Upstream};
use crate::config::settings::Settings;
use crate::policy_file::diagnostics::ConfigError;
use crate::policy_file::dialects;
use crate::progress::Policy;
use crate::progress::dialect::Dialect;

/// A preset, resolved.
pub struct PresetSettings {
    pub(in crate::config::routes) preset: Preset,
    section: RouteSection,
    settings: Settings,
    /// The dialects that the settings may name: those of the file, and those that only the preset has.
    dialects: Vec<Dialect>,
}

impl PresetSettings {
    /// Reads a preset; `own`: the dialects of a route file, which take precedence over those of the preset.
    pub(in crate::config::routes) fn read(
        preset: Preset,
        own: &[Dialect],
    ) -> Result<Self, ConfigError> {
        let file = File::read(DeTable::parse(preset.lines)?)?;
        let mut dialects = own.to_vec();
        for dialect in dialects::read(&file.dialect)? {
            // A dialect of the file with the same name is the author's correction of the preset.
            if !dialects.iter().any(|known| known.name() == dialect.name()) {
                dialects.push(dialect);
            }
        }
        let section = file.route.into_iter().next().unwrap_or_default();
        let progress = &section.settings.progress;
        let settings = dialects::choose(progress.settings(), progress.dialects(), &dialects)?;
        Ok(Self { preset, section, settings, dialects })
    }

    /// Returns the dialects of the file, and those of the preset.
    pub fn dialects(&self) -> &[Dialect] {
        &self.dialects
    }

    /// Changes `policy` by the preset's settings of progress.
    pub fn apply(&self, policy: &mut Policy) {
        self.settings.apply(policy);
    }

    /// Gives a route of a file the settings that it does not have itself.
    pub(super) fn lay_under(&self, route: &mut Route) -> Result<(), ConfigError> {
        route.preset = Some(self.preset);
        route.preset_settings = self.settings.clone();
        self.connect(route)
    }

    /// Changes `route` by the settings of connections, and adds the preset's lifecycle if the route has none.
    pub(in crate::config::routes) fn connect(&self, route: &mut Route) -> Result<(), ConfigError> {
        self.section.settings.merge_into(route);
        let lifecycle =
            self.section.upstream.as_ref().and_then(|upstream| upstream.lifecycle.as_ref());
        // The lifecycle of the route takes precedence over the preset's, like every other key.
        if let (Some(section), Upstream::Http(http)) = (lifecycle, &mut route.upstream)
            && let (Some(url), None) = (&http.url, &http.lifecycle)
        {
            let read = upstream::lifecycle(section.get_ref(), url, &mut EnvValues::default())?;
            http.lifecycle = Some(Box::new(read));
        }
        Ok(())
    }
}
