//! A route file as it is meant: everything resolved and checked.

mod dialects;
mod headers;
mod listeners;
mod paths;
mod pem;
mod upstream;

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::env::{EnvValues, Environment, expand};
use super::file::File;
use super::keys::RouteTable;
use super::route::{Admin, Route, Server, Upstream};
use crate::config::routes::diagnostics::ConfigError;
use crate::config::settings::Settings;
use crate::config::values::{OFF, StateDir, nearest};
use crate::progress::dialect::Dialect;

/// What a route file means.
#[derive(Debug)]
pub(super) struct ResolvedConfig {
    pub(super) server: Server,
    pub(super) admin: Admin,
    pub(super) state: Option<StateDir>,
    pub(super) defaults: Settings,
    pub(super) routes: Vec<Route>,
    pub(super) dialects: Vec<Dialect>,
    pub(super) env_values: EnvValues,
}

/// Reads the text of a file whose relative paths begin at `folder`.
pub(super) fn read(
    text: &str,
    folder: &Path,
    environment: &Environment,
) -> Result<ResolvedConfig, ConfigError> {
    let mut table = DeTable::parse(text)?;
    let mut env_values = expand(table.get_mut(), text, environment)?;
    let file = File::deserialize(Deserializer::from(table)).map_err(ConfigError::from);
    file.and_then(|file| resolve(&file, folder, &mut env_values))
        .map_err(|wrong| env_values.hide(wrong))
        .map(|resolved| ResolvedConfig { env_values, ..resolved })
}

fn resolve(
    file: &File,
    folder: &Path,
    env_values: &mut EnvValues,
) -> Result<ResolvedConfig, ConfigError> {
    let (server, admin) = listeners::read(file, folder)?;
    let state = state(file, folder)?;
    let own = dialects::read(&file.dialect)?;
    let mut routes: Vec<Route> = Vec::new();
    for table in &file.route {
        let route = route(file, table, &own, folder, env_values)?;
        paths::admit(table, &route, &routes)?;
        routes.push(route);
    }
    let defaults =
        dialects::choose(file.defaults.all().settings(), file.defaults.all().dialects(), &own)?;
    Ok(ResolvedConfig {
        server,
        admin,
        state,
        defaults,
        routes,
        dialects: own,
        env_values: EnvValues::default(),
    })
}

fn state(file: &File, folder: &Path) -> Result<Option<StateDir>, ConfigError> {
    let Some(said) = &file.state.dir else { return Ok(None) };
    let text = said.get_ref();
    let what = match nearest(text, [OFF]) {
        _ if text == OFF => return Ok(Some(StateDir::Off)),
        _ if text.is_empty() => "a folder is expected, or \"off\"".to_owned(),
        Some(off) => format!("did you mean {off:?}? A folder of this name is \"./{text}\""),
        None => return Ok(Some(StateDir::At(folder.join(text)))),
    };
    Err(ConfigError::new(said.span(), what))
}

fn route(
    file: &File,
    table: &Spanned<RouteTable>,
    own: &[Dialect],
    folder: &Path,
    env_values: &mut EnvValues,
) -> Result<Route, ConfigError> {
    let said = table.get_ref();
    let missing = |what| ConfigError::new(table.span(), format!("{what} is missing"));
    let path = said.path.as_ref().ok_or_else(|| missing("`path`, such as path = \"/reports\","))?;
    let upstream = said.upstream.as_ref().ok_or_else(|| {
        missing("`upstream`, such as upstream.command = [\"node\", \"server.js\"],")
    })?;
    let upstream = upstream::read(upstream, folder, env_values)?;
    let mut route = Route::new(path.get_ref().0.clone(), upstream);
    file.defaults.all().merge_into(&mut route);
    said.all().merge_into(&mut route);
    if let Some(opaque) = &said.opaque {
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
    route.request_headers = headers::read(&said.headers.request, env_values)?;
    route.response_headers = headers::read(&said.headers.response, env_values)?;
    route.settings = dialects::choose(said.all().settings(), said.all().dialects(), own)?;
    Ok(route)
}
