//! `upstream`: exactly one kind of server, and only the keys that go with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use toml::Spanned;
use url::Url;

use super::{listeners, pem};
use crate::routes::env::Taken;
use crate::routes::file;
use crate::routes::spelling::{Endpoint, Reference, Text};
use crate::routes::wrong::Wrong;
use crate::routes::{HttpUpstream, Lifecycle, ServerInfo, Upstream};

pub(super) fn read(
    table: &Spanned<file::Upstream>,
    folder: &Path,
    taken: &mut Taken,
) -> Result<Upstream, Wrong> {
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
        Wrong::new(table.span(), what)
    })?;
    if let Some((other, span)) = kinds.get(1) {
        let what = format!("`{kind}` is there already, and `{other}` is another kind of upstream");
        return Err(Wrong::new(span.clone(), what));
    }
    only_with(&said.env, said.command.is_some(), "env", "command")?;
    only_with(&said.http2, http.is_some(), "http2", "url` or `sse")?;
    only_with(&said.ca_file, http.is_some(), "ca_file", "url` or `sse")?;
    only_with(&said.client_certificate, http.is_some(), "client_certificate", "url` or `sse")?;
    only_with(&said.lifecycle, said.url.is_some(), "lifecycle", "url")?;
    if let Some(demo) = &said.demo {
        if !demo.get_ref() {
            return Err(Wrong::new(demo.span(), "true is expected, or another upstream"));
        }
        return Ok(Upstream::Demo);
    }
    if let Some(command) = &said.command {
        return self::command(command, said.env.as_ref());
    }
    endpoints(said, folder, taken).map(Upstream::Http)
}

fn only_with<T>(key: &Option<Spanned<T>>, fits: bool, name: &str, kind: &str) -> Result<(), Wrong> {
    match key {
        Some(key) if !fits => {
            let what = format!("`{name}` goes with `{kind}`, which this upstream does not have");
            Err(Wrong::new(key.span(), what))
        }
        _ => Ok(()),
    }
}

fn command(
    command: &Spanned<Vec<String>>,
    env: Option<&Spanned<BTreeMap<Spanned<String>, String>>>,
) -> Result<Upstream, Wrong> {
    if command.get_ref().first().is_none_or(String::is_empty) {
        let what = "a command and its arguments are expected, such as [\"node\", \"server.js\"]";
        return Err(Wrong::new(command.span(), what));
    }
    // The system ends every argument at a zero.
    if command.get_ref().iter().any(|part| part.contains('\0')) {
        return Err(Wrong::new(command.span(), "a command without \\u0000 is expected"));
    }
    let variables = env.map(Spanned::get_ref).into_iter().flatten();
    for (name, value) in variables.clone() {
        if name.get_ref().is_empty() || name.get_ref().contains(['=', '\0']) {
            let what = "a name of a variable, without `=`, is expected";
            return Err(Wrong::new(name.span(), what));
        }
        if value.contains('\0') {
            return Err(Wrong::new(name.span(), "a value without \\u0000 is expected"));
        }
    }
    Ok(Upstream::Command {
        command: command.get_ref().iter().map(OsString::from).collect(),
        env: variables.map(|(name, value)| (name.get_ref().into(), value.into())).collect(),
    })
}

fn endpoints(
    said: &file::Upstream,
    folder: &Path,
    taken: &mut Taken,
) -> Result<HttpUpstream, Wrong> {
    let mut endpoint = |key: &Option<Spanned<Text<Endpoint>>>| {
        let (url, text) = &key.as_ref()?.get_ref().0;
        taken.respelled(text, url.as_str());
        Some(url.clone())
    };
    let (url, sse) = (endpoint(&said.url), endpoint(&said.sse));
    let is_tls = [&url, &sse].into_iter().flatten().any(|url: &Url| url.scheme() == "https");
    let needs_tls = |key: &str, span| {
        let what = format!("`{key}` is for https:// only, and this upstream has http://");
        Err(Wrong::new(span, what))
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
        upstream.lifecycle = Some(lifecycle(table.get_ref(), url, taken)?);
    }
    if let Some(file) = &said.ca_file {
        if !is_tls {
            return needs_tls("ca_file", file.span());
        }
        let path = folder.join(file.get_ref());
        pem::certificates(&path).map_err(|what| Wrong::new(file.span(), what))?;
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
    taken: &mut Taken,
) -> Result<Lifecycle, Wrong> {
    let mut place = |key: &Option<Spanned<Text<Reference>>>| {
        key.as_ref().map(|key| near(key, endpoint, taken)).transpose()
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
fn near(key: &Spanned<Text<Reference>>, endpoint: &Url, taken: &mut Taken) -> Result<Url, Wrong> {
    let text = &key.get_ref().0;
    let wrong = |what: String| Wrong::new(key.span(), what);
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
    taken.respelled(text, url.as_str());
    Ok(url)
}
