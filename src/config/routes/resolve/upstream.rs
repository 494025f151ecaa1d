//! `upstream`: exactly one kind of server, and only the keys for that kind.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use url::Url;

use super::listeners;
use crate::config::routes::env::EnvValues;
use crate::config::routes::file::LifecycleSection;
use crate::config::routes::keys::{RETIRED, ScopeTable, UpstreamSection};
use crate::config::routes::lifecycle::Lifecycle;
use crate::config::routes::pem;
use crate::config::routes::route::{HttpUpstream, StdioUpstream, Upstream};
use crate::config::settings::SettingScope;
use crate::config::values::proxy_url::ProxyChoice;
use crate::config::values::text::{Endpoint, Reference};
use crate::policy_file::diagnostics::ConfigError;
use crate::policy_file::text::TextValue;

pub(super) fn read(
    section: &UpstreamSection,
    folder: &Path,
    env_values: &mut EnvValues,
) -> Result<Upstream, ConfigError> {
    let http = section.url.as_ref().or(section.sse.as_ref());
    let kinds = [
        section.demo.as_ref().map(|demo| ("demo", demo.span())),
        section.command.as_ref().map(|command| ("command", command.span())),
        http.map(|url| (if section.url.is_some() { "url" } else { "sse" }, url.span())),
    ];
    let kinds: Vec<_> = kinds.into_iter().flatten().collect();
    let (kind, _) = kinds.first().ok_or_else(|| {
        let what = "one of `command`, `url`, `sse` and `demo` is expected, such as upstream.command = \
            [\"node\", \"server.js\"]";
        ConfigError::new(section.span.clone(), what)
    })?;
    if let Some((other, span)) = kinds.get(1) {
        let what = format!("`{kind}` is there already, and `{other}` is another kind of upstream");
        return Err(ConfigError::new(span.clone(), what));
    }
    if section.command.is_none() {
        has_none(&section.stdio, "command")?;
    }
    if http.is_none() {
        has_none(&section.http, "url` or `sse")?;
    }
    if let Some(engine) = section.engine.as_ref().filter(|_| http.is_none()) {
        return Err(goes_with(RETIRED, "url` or `sse", engine.span()));
    }
    if let Some(lifecycle) = section.lifecycle.as_ref().filter(|_| section.url.is_none()) {
        return Err(goes_with("lifecycle", "url", lifecycle.span()));
    }
    if let Some(demo) = &section.demo {
        if !demo.get_ref() {
            return Err(ConfigError::new(demo.span(), "true is expected, or another upstream"));
        }
        return Ok(Upstream::Demo);
    }
    if let Some(command) = &section.command {
        return stdio(&section.stdio, command, folder).map(Upstream::Command);
    }
    endpoints(section, folder, env_values).map(Upstream::Http)
}

/// Refuses settings of another kind of upstream.
fn has_none<S: SettingScope>(table: &ScopeTable<S>, kind: &str) -> Result<(), ConfigError> {
    for key in ScopeTable::<S>::keys() {
        if let Some(place) = table.place(key) {
            return Err(goes_with(key, kind, place));
        }
    }
    Ok(())
}

fn goes_with(key: &str, kind: &str, place: Range<usize>) -> ConfigError {
    let what = format!("`{key}` goes with `{kind}`, which this upstream does not have");
    ConfigError::new(place, what)
}

fn stdio(
    table: &ScopeTable<StdioUpstream>,
    command: &Spanned<Vec<String>>,
    folder: &Path,
) -> Result<StdioUpstream, ConfigError> {
    let mut stdio = table.over(StdioUpstream::new(self::command(command)?));
    for (name, value) in &stdio.env {
        // Checked here, because the error of `exec` would come only with the first client and would not name the key.
        let wrong =
            |what| ConfigError::new(table.key_span(&format!("env.{}", name.display())), what);
        if name.is_empty() || name.as_encoded_bytes().iter().any(|byte| b"=\0".contains(byte)) {
            return Err(wrong("a name of a variable, without `=`, is expected"));
        }
        if value.as_encoded_bytes().contains(&0) {
            return Err(wrong("a value without \\u0000 is expected"));
        }
    }
    if let Some(cwd) = &mut stdio.cwd {
        *cwd = self::folder(cwd, folder)
            .map_err(|what| ConfigError::new(table.place("cwd").unwrap_or_default(), what))?;
    }
    Ok(stdio)
}

fn command(command: &Spanned<Vec<String>>) -> Result<Vec<OsString>, ConfigError> {
    if command.get_ref().first().is_none_or(String::is_empty) {
        let what = "a command and its arguments are expected, such as [\"node\", \"server.js\"]";
        return Err(ConfigError::new(command.span(), what));
    }
    // An argument of a command ends at a zero byte, so the child would get less than the file has.
    if command.get_ref().iter().any(|part| part.contains('\0')) {
        return Err(ConfigError::new(command.span(), "a command without \\u0000 is expected"));
    }
    Ok(command.get_ref().iter().map(OsString::from).collect())
}

/// Returns the directory in which a command runs, which must exist.
fn folder(cwd: &Path, base: &Path) -> Result<PathBuf, String> {
    if cwd.as_os_str().is_empty() {
        return Err("a folder such as \"server\" is expected".to_owned());
    }
    let path = base.join(cwd);
    match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => Ok(path),
        Ok(_) => Err(format!("{} is no folder", path.display())),
        Err(error) => Err(format!("cannot use {}: {error}", path.display())),
    }
}

fn endpoints(
    section: &UpstreamSection,
    folder: &Path,
    env_values: &mut EnvValues,
) -> Result<HttpUpstream, ConfigError> {
    let mut endpoint = |key: &Option<Spanned<TextValue<Endpoint>>>| {
        let (url, text) = &key.as_ref()?.get_ref().0;
        // The parser may write a URL in another form than the file; both spellings must be hidden in output.
        env_values.respelled(text, url.as_str());
        Some(url.clone())
    };
    let (url, sse) = (endpoint(&section.url), endpoint(&section.sse));
    let mut upstream = section.http.over(HttpUpstream { url, sse, ..HttpUpstream::default() });
    if let (Some(table), Some(url)) = (&section.lifecycle, &upstream.url) {
        upstream.lifecycle = Some(Box::new(lifecycle(table.get_ref(), url, env_values)?));
    }
    let urls = [&upstream.url, &upstream.sse];
    let is_tls = urls.into_iter().flatten().any(|url| url.scheme() == "https");
    let has_tls_proxy = upstream.proxy.as_ref().is_some_and(ProxyChoice::is_tls);
    // A certificate that is never used suggests that `http://` is a mistake.
    for (key, is_used) in [("ca_file", is_tls || has_tls_proxy), ("client_certificate", is_tls)] {
        if let Some(place) = section.http.place(key).filter(|_| !is_used) {
            let what = format!("`{key}` is for https:// only, and this upstream has http://");
            return Err(ConfigError::new(place, what));
        }
    }
    for file in upstream.ca_file.iter_mut().flat_map(|authorities| &mut authorities.files) {
        *file = folder.join(&*file);
        let place = section.http.place("ca_file").unwrap_or_default();
        pem::certificates(file).map_err(|what| ConfigError::new(place, what))?;
    }
    if let Some(files) = &mut upstream.client_certificate {
        listeners::certificate(files, folder, &section.http, "client_certificate")?;
    }
    Ok(upstream)
}

/// Returns the answers in the place of the server at `endpoint`.
pub(super) fn lifecycle(
    section: &LifecycleSection,
    endpoint: &Url,
    env_values: &mut EnvValues,
) -> Result<Lifecycle, ConfigError> {
    let mut place = |key: &Option<Spanned<TextValue<Reference>>>| {
        key.as_ref().map(|key| near(key, endpoint, env_values)).transpose()
    };
    Ok(Lifecycle {
        tools: place(&section.tools)?,
        initialize: place(&section.initialize)?,
        server: section.server.clone(),
        wrap_results: section.wrap_results.unwrap_or(true),
        end_with_answer: section.end_with_answer.unwrap_or(true),
    })
}

/// Reads a URL that must have the same origin as `endpoint`, because requests to it carry what clients send to the
/// endpoint, including their tokens.
fn near(
    key: &Spanned<TextValue<Reference>>,
    endpoint: &Url,
    env_values: &mut EnvValues,
) -> Result<Url, ConfigError> {
    let text = &key.get_ref().0;
    let wrong = |what: String| ConfigError::new(key.span(), what);
    let url = endpoint.join(text).map_err(|error| {
        wrong(format!("this is no URL ({error}); one such as \"/tools/list\" is expected"))
    })?;
    if url.origin() != endpoint.origin() {
        let what = "a URL with the scheme, host and port of `url` is expected";
        return Err(wrong(what.to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("a URL without user and password is expected".to_owned()));
    }
    // If this URL were the endpoint itself, the response to a call would be taken for the list of tools.
    if url == *endpoint {
        return Err(wrong("another URL than `url` itself is expected".to_owned()));
    }
    env_values.respelled(text, url.as_str());
    Ok(url)
}
