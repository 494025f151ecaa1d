//! A route file, resolved and checked.

mod headers;
mod listeners;
mod paths;
mod preset;
mod upstream;

use std::path::Path;

use toml::Spanned;
use toml::de::DeTable;
use url::Url;

use super::env::{EnvValues, Environment, expand};
use super::file::File;
use super::fleet::Fleet;
use super::keys::RouteSection;
use super::route::{Admin, Route, Server, Upstream};
use crate::config::settings::Settings;
use crate::config::values::StateDir;
use crate::policy_file::diagnostics::ConfigError;
use crate::policy_file::dialects;
use crate::progress::Policy;
use crate::progress::dialect::Dialect;

pub use preset::PresetSettings;

/// Everything that a route file says, resolved.
#[derive(Debug)]
pub(super) struct ResolvedConfig {
    pub(super) server: Server,
    pub(super) admin: Admin,
    pub(super) fleet: Option<Fleet>,
    pub(super) state: Option<StateDir>,
    pub(super) defaults: Settings,
    pub(super) routes: Vec<Route>,
    pub(super) dialects: Vec<Dialect>,
    pub(super) env_values: EnvValues,
}

/// Reads the table of a file, which was read from `text`. Relative paths begin at `folder`.
pub(super) fn read(
    mut table: Spanned<DeTable<'_>>,
    text: &str,
    folder: &Path,
    environment: &Environment,
) -> Result<ResolvedConfig, ConfigError> {
    let mut env_values = expand(table.get_mut(), text, environment)?;
    File::read(table)
        .and_then(|file| resolve(&file, folder, &mut env_values))
        // Errors may quote a string that came from the environment.
        .map_err(|wrong| env_values.hide(wrong))
        .map(|resolved| ResolvedConfig { env_values, ..resolved })
}

fn resolve(
    file: &File,
    folder: &Path,
    env_values: &mut EnvValues,
) -> Result<ResolvedConfig, ConfigError> {
    let (server, admin) = listeners::read(file, folder)?;
    let fleet = listeners::fleet(file.fleet.as_ref(), [Some(server.listen), admin.listen])?;
    let state = listeners::state(&file.state, folder);
    let mut own = dialects::read(&file.dialect)?;
    let mut routes: Vec<Route> = Vec::new();
    for (number, table) in file.route.iter().enumerate() {
        let preset = preset(table, &mut own)?;
        let mut route = route(file, table, preset.as_ref(), &own, folder, env_values)?;
        if let Upstream::Command(stdio) = &mut route.upstream {
            stdio.private_env = env_values.private_of(number);
        }
        route.public_url = public_url(table, &route, &server);
        // Each path is compared with those of earlier routes, so that the later of two equal paths is the error.
        paths::admit(table, &route, &routes)?;
        routes.push(route);
    }
    // Only now, because `defaults` may name dialects that come from the presets of routes.
    let of_all = &file.defaults.progress;
    let defaults = dialects::choose(of_all.settings(), of_all.dialects(), &own)?;
    for (section, route) in file.route.iter().zip(&routes) {
        let mut policy = Policy::default();
        defaults.apply(&mut policy);
        route.apply(&mut policy);
        if let Some(what) = no_face(&policy, route, fleet.as_ref()) {
            return Err(ConfigError::new(section.span.clone(), what));
        }
    }
    Ok(ResolvedConfig {
        server,
        admin,
        fleet,
        state,
        defaults,
        routes,
        dialects: own,
        env_values: EnvValues::default(),
    })
}

/// Returns the reason why a route cannot have `modern`, although its settings enable it.
fn no_face(policy: &Policy, route: &Route, fleet: Option<&Fleet>) -> Option<&'static str> {
    if !policy.modern {
        None
    } else if route.opaque {
        Some(
            "a route that is only piped translates nothing; leave out `modern` or `opaque` here, or say modern = false",
        )
    } else if matches!(route.upstream, Upstream::Demo) {
        Some(
            "the demo server needs no `modern`: it answers clients of every revision; say modern = false here",
        )
    } else if fleet.is_some() {
        Some(
            "`modern` is not possible in a [fleet]: requests of 2026-07-28 belong to no session, so that each replica \
              would start a server of its own for the same client; say modern = false here, or leave out [fleet]",
        )
    } else {
        None
    }
}

/// Returns the preset of a route; its dialects can be used as if the file described them.
fn preset(
    section: &RouteSection,
    own: &mut Vec<Dialect>,
) -> Result<Option<PresetSettings>, ConfigError> {
    let Some(named) = &section.preset else { return Ok(None) };
    if section.opaque.as_ref().is_some_and(|opaque| *opaque.get_ref()) {
        let what = "an opaque route has no use for a preset";
        return Err(ConfigError::new(named.span(), what));
    }
    // A fault within a preset is not in this file, so the error is reported at the key that names the preset.
    let place = |error: ConfigError| ConfigError::new(named.span(), error.what);
    let preset = PresetSettings::read(named.get_ref().0, own).map_err(place)?;
    *own = preset.dialects().to_vec();
    Ok(Some(preset))
}

/// Returns the URL of a route for clients: its own, or the server's URL with the path of the route.
fn public_url(section: &RouteSection, route: &Route, server: &Server) -> Option<Url> {
    let of_server = || {
        let mut url = server.public_url.clone()?;
        url.set_path(&format!("{}{}", url.path().trim_end_matches('/'), route.path));
        Some(url)
    };
    dialects::value_of(&section.public_url).or_else(of_server)
}

fn route(
    file: &File,
    section: &RouteSection,
    preset: Option<&PresetSettings>,
    own: &[Dialect],
    folder: &Path,
    env_values: &mut EnvValues,
) -> Result<Route, ConfigError> {
    let missing = |what| ConfigError::new(section.span.clone(), format!("{what} is missing"));
    let path =
        section.path.as_ref().ok_or_else(|| missing("`path`, such as path = \"/reports\","))?;
    let upstream = section.upstream.as_ref().ok_or_else(|| {
        missing("`upstream`, such as upstream.command = [\"node\", \"server.js\"],")
    })?;
    let upstream = upstream::read(upstream, folder, env_values)?;
    let mut route = Route::new(path.get_ref().0.clone(), upstream);
    // From the weakest to the strongest: the defaults of the file, the preset, the route's own keys.
    file.defaults.merge_into(&mut route);
    if let Some(preset) = preset {
        preset.lay_under(&mut route)?;
    }
    section.settings.merge_into(&mut route);
    if let Some(opaque) = &section.opaque {
        if *opaque.get_ref() && !matches!(route.upstream, Upstream::Http(_)) {
            let what = "only a route to `upstream.url` or `upstream.sse` can be piped";
            return Err(ConfigError::new(opaque.span(), what));
        }
        if *opaque.get_ref() && route.lifecycle().is_some() {
            let what = "a route that is only piped answers nothing, and this one has `lifecycle`";
            return Err(ConfigError::new(opaque.span(), what));
        }
        route.opaque = *opaque.get_ref();
    }
    if let Some(key) = &section.headers.request.cookie_path {
        let what = "cookies of requests have no path; `cookie_path` belongs to `headers.response`";
        return Err(ConfigError::new(key.span(), what));
    }
    route.request_headers = headers::read(&section.headers.request, folder, env_values)?;
    if let Some(value) = section.headers.response.bearer_file() {
        let what =
            "the token of a file is for requests; `bearer_file` belongs to `headers.request`";
        return Err(ConfigError::new(value, what));
    }
    route.response_headers = headers::read(&section.headers.response, folder, env_values)?;
    let progress = &section.settings.progress;
    route.settings = dialects::choose(progress.settings(), progress.dialects(), own)?;
    Ok(route)
}
