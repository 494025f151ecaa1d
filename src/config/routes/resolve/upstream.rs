//! `upstream`: exactly one kind of server, and only the keys that go with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::Spanned;
use url::Url;

use super::{listeners, pem};
use crate::config::routes::diagnostics::ConfigError;
use crate::config::routes::env::EnvValues;
use crate::config::routes::file;
use crate::config::routes::route::{HttpUpstream, Lifecycle, ServerInfo, StdioUpstream, Upstream};
use crate::config::values::text::{Endpoint, Reference, Text};

/// The variables of a command, by name.
type Variables = BTreeMap<Spanned<String>, String>;

pub(super) fn read(
    table: &Spanned<file::Upstream>,
    folder: &Path,
    env_values: &mut EnvValues,
) -> Result<Upstream, ConfigError> {
    let said = table.get_ref();
    let http = said.url.as_ref().or(said.sse.as_ref());
    let kinds = [
        said.demo.as_ref().map(|demo| ("demo", demo.span())),
        said.command.as_ref().map(|command| ("command", command.span())),
        http.map(|url| (if said.url.is_some() { "url" } else { "sse" }, url.span())),
    ];
    let kinds: Vec<_> = kinds.into_iter().flatten().collect();
    let (kind, _) = kinds.first().ok_or_else(|| {
        let what = "one of `command`, `url`, `sse` and `demo` is expected, such as upstream.command = \
            [\"node\", \"server.js\"]";
        ConfigError::new(table.span(), what)
    })?;
    if let Some((other, span)) = kinds.get(1) {
        let what = format!("`{kind}` is there already, and `{other}` is another kind of upstream");
        return Err(ConfigError::new(span.clone(), what));
    }
    let is_stdio = said.command.is_some();
    only_with(&said.env, is_stdio, "env", "command")?;
    only_with(&said.cwd, is_stdio, "cwd", "command")?;
    only_with(&said.share, is_stdio, "share", "command")?;
    only_with(&said.max_children, is_stdio, "max_children", "command")?;
    only_with(&said.start_timeout, is_stdio, "start_timeout", "command")?;
    only_with(&said.idle_timeout, is_stdio, "idle_timeout", "command")?;
    only_with(&said.restart, is_stdio, "restart", "command")?;
    only_with(&said.max_frame, is_stdio, "max_frame", "command")?;
    only_with(&said.max_spill, is_stdio, "max_spill", "command")?;
    only_with(&said.http2, http.is_some(), "http2", "url` or `sse")?;
    only_with(&said.ca_file, http.is_some(), "ca_file", "url` or `sse")?;
    only_with(&said.client_certificate, http.is_some(), "client_certificate", "url` or `sse")?;
    only_with(&said.lifecycle, said.url.is_some(), "lifecycle", "url")?;
    if let Some(demo) = &said.demo {
        if !demo.get_ref() {
            return Err(ConfigError::new(demo.span(), "true is expected, or another upstream"));
        }
        return Ok(Upstream::Demo);
    }
    if let Some(command) = &said.command {
        return stdio(said, command, folder).map(Upstream::Command);
    }
    endpoints(said, folder, env_values).map(Upstream::Http)
}

fn only_with<T>(
    key: &Option<Spanned<T>>,
    fits: bool,
    name: &str,
    kind: &str,
) -> Result<(), ConfigError> {
    match key {
        Some(key) if !fits => {
            let what = format!("`{name}` goes with `{kind}`, which this upstream does not have");
            Err(ConfigError::new(key.span(), what))
        }
        _ => Ok(()),
    }
}

fn stdio(
    said: &file::Upstream,
    command: &Spanned<Vec<String>>,
    folder: &Path,
) -> Result<StdioUpstream, ConfigError> {
    let defaults = StdioUpstream::new(self::command(command)?);
    Ok(StdioUpstream {
        env: said.env.as_ref().map_or_else(|| Ok(Vec::new()), |env| variables(env.get_ref()))?,
        cwd: said.cwd.as_ref().map(|cwd| self::folder(cwd, folder)).transpose()?,
        share: or(&said.share, defaults.share, |share| *share),
        max_children: or(&said.max_children, defaults.max_children, |count| count.0),
        start_timeout: or(&said.start_timeout, defaults.start_timeout, |time| time.0),
        idle_timeout: or(&said.idle_timeout, defaults.idle_timeout, |time| time.0),
        restart: or(&said.restart, defaults.restart, |restart| *restart),
        max_frame: or(&said.max_frame, defaults.max_frame, |count| count.0),
        max_spill: or(&said.max_spill, defaults.max_spill, |count| count.0 as u64),
        ..defaults
    })
}

/// What a key says, or the default.
fn or<T, V>(key: &Option<Spanned<T>>, default: V, value: impl FnOnce(&T) -> V) -> V {
    key.as_ref().map_or(default, |key| value(key.get_ref()))
}

fn command(command: &Spanned<Vec<String>>) -> Result<Vec<OsString>, ConfigError> {
    if command.get_ref().first().is_none_or(String::is_empty) {
        let what = "a command and its arguments are expected, such as [\"node\", \"server.js\"]";
        return Err(ConfigError::new(command.span(), what));
    }
    // The system ends every argument at a zero.
    if command.get_ref().iter().any(|part| part.contains('\0')) {
        return Err(ConfigError::new(command.span(), "a command without \\u0000 is expected"));
    }
    Ok(command.get_ref().iter().map(OsString::from).collect())
}

fn variables(said: &Variables) -> Result<Vec<(OsString, OsString)>, ConfigError> {
    for (name, value) in said {
        if name.get_ref().is_empty() || name.get_ref().contains(['=', '\0']) {
            let what = "a name of a variable, without `=`, is expected";
            return Err(ConfigError::new(name.span(), what));
        }
        if value.contains('\0') {
            return Err(ConfigError::new(name.span(), "a value without \\u0000 is expected"));
        }
    }
    Ok(said.iter().map(|(name, value)| (name.get_ref().into(), value.into())).collect())
}

/// The folder that a command runs in, which has to be there.
fn folder(said: &Spanned<String>, base: &Path) -> Result<PathBuf, ConfigError> {
    if said.get_ref().is_empty() {
        return Err(ConfigError::new(said.span(), "a folder such as \"server\" is expected"));
    }
    let path = base.join(said.get_ref());
    let what = match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => return Ok(path),
        Ok(_) => format!("{} is no folder", path.display()),
        Err(error) => format!("cannot use {}: {error}", path.display()),
    };
    Err(ConfigError::new(said.span(), what))
}

fn endpoints(
    said: &file::Upstream,
    folder: &Path,
    env_values: &mut EnvValues,
) -> Result<HttpUpstream, ConfigError> {
    let mut endpoint = |key: &Option<Spanned<Text<Endpoint>>>| {
        let (url, text) = &key.as_ref()?.get_ref().0;
        env_values.respelled(text, url.as_str());
        Some(url.clone())
    };
    let (url, sse) = (endpoint(&said.url), endpoint(&said.sse));
    let is_tls = [&url, &sse].into_iter().flatten().any(|url: &Url| url.scheme() == "https");
    let needs_tls = |key: &str, span| {
        let what = format!("`{key}` is for https:// only, and this upstream has http://");
        Err(ConfigError::new(span, what))
    };
    let mut upstream = HttpUpstream {
        url,
        sse,
        http2: said.http2.as_ref().is_some_and(|http2| *http2.get_ref()),
        ca_file: None,
        client_certificate: None,
        lifecycle: None,
    };
    if let (Some(table), Some(url)) = (&said.lifecycle, &upstream.url) {
        upstream.lifecycle = Some(Box::new(lifecycle(table.get_ref(), url, env_values)?));
    }
    if let Some(file) = &said.ca_file {
        if !is_tls {
            return needs_tls("ca_file", file.span());
        }
        let path = folder.join(file.get_ref());
        pem::certificates(&path).map_err(|what| ConfigError::new(file.span(), what))?;
        upstream.ca_file = Some(path);
    }
    if let Some(certificate) = &said.client_certificate {
        if !is_tls {
            return needs_tls("client_certificate", certificate.span());
        }
        let certificate = listeners::certificate(certificate.get_ref(), folder)?;
        upstream.client_certificate = Some(certificate);
    }
    Ok(upstream)
}

fn lifecycle(
    said: &file::Lifecycle,
    endpoint: &Url,
    env_values: &mut EnvValues,
) -> Result<Lifecycle, ConfigError> {
    let mut place = |key: &Option<Spanned<Text<Reference>>>| {
        key.as_ref().map(|key| near(key, endpoint, env_values)).transpose()
    };
    let server = |said: &file::ServerInfo| ServerInfo {
        name: said.name.clone(),
        version: said.version.clone(),
    };
    Ok(Lifecycle {
        tools: place(&said.tools)?,
        initialize: place(&said.initialize)?,
        server: said.server.as_ref().map(server),
        wrap_results: said.wrap_results.unwrap_or(true),
        end_with_answer: said.end_with_answer.unwrap_or(true),
    })
}

/// A URL on the server of an endpoint. It is sent what clients send that one, their tokens among it.
fn near(
    key: &Spanned<Text<Reference>>,
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
    if url == *endpoint {
        return Err(wrong("another URL than `url` itself is expected".to_owned()));
    }
    env_values.respelled(text, url.as_str());
    Ok(url)
}
