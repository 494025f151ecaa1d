//! Oversights: settings that a route file may have, but that its author probably does not intend.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use url::{Host, Url};

use super::faults::ConfigFault;
use super::keys::RETIRED;
use super::route::{Route, StdioUpstream, Upstream};
use super::route_file::Routes;
use crate::config::programs;
use crate::policy_file::diagnostics::{self, ConfigError};
use crate::protocol::order;

/// The keys of a dialect that hold JSON pointers.
const POINTERS: [&str; 6] = ["request_id", "token", "progress", "total", "message", "final"];

/// Returns the oversights of a file, in the order of the file.
pub(super) fn find(routes: &Routes) -> Vec<ConfigFault> {
    let Ok(table) = DeTable::parse(routes.text()) else { return Vec::new() };
    let table = table.get_ref();
    let mut found = Vec::new();
    for (route, section) in routes.iter().zip(elements(table, "route")) {
        let upstream = member(section, "upstream");
        match &route.upstream {
            Upstream::Command(stdio) => {
                let place = upstream.and_then(|upstream| member_of(upstream, "command"));
                found.extend(place.and_then(|place| missing_program(stdio, place)));
                found.extend(place.and_then(|place| lone_session(routes, place)));
            }
            Upstream::Http(_) => {
                let place = ["url", "sse"].iter().find_map(|key| member_of(upstream?, key));
                found.extend(place.and_then(|place| own_listener(routes, route, place)));
                let key = |key| member_of(upstream?, key);
                let sse = key("sse").filter(|_| key("url").is_none());
                found.extend(sse.and_then(|place| lone_session(routes, place)));
            }
            Upstream::Demo => {}
        }
    }
    if let Some(DeValue::Table(server)) = member(table, "server").map(Spanned::get_ref) {
        found.extend(silent_principal(routes, server));
    }
    let named = named_dialects(table);
    for section in elements(table, "dialect") {
        found.extend(unused_dialect(section, &named));
        found.extend(pointers(section));
        found.extend(empty_dialect(section));
    }
    if routes.iter().next().is_none() {
        let what = "there is no route; write at least one [[route]] with a path and an upstream";
        found.push(ConfigError::new(0..0, what));
    }
    // Warnings are found by kind, but are shown in the order of the file.
    order::sort_by_key(&mut found, |oversight| oversight.at);
    found.into_iter().map(|oversight| warning(routes, oversight)).collect()
}

fn warning(routes: &Routes, oversight: ConfigError) -> ConfigFault {
    let (path, text) = (routes.path(), routes.text());
    let key = diagnostics::key_at(text, oversight.at).filter(|_| routes.iter().next().is_some());
    ConfigFault::of(path, text, oversight, key).into_warning()
}

/// Returns the warning about the key of `upstream` that has no effect: one for the whole file, at the first use of the
/// key.
pub(super) fn retired(routes: &Routes) -> Option<ConfigFault> {
    let table = DeTable::parse(routes.text()).ok()?;
    let places = elements(table.get_ref(), "route")
        .filter_map(|section| member_of(member(section, "upstream")?, RETIRED));
    let first = places.map(Spanned::span).min_by_key(|place| place.start)?;
    let what = format!(
        "`{RETIRED}` has no effect any more, as Milepost's own code speaks HTTP/1.1 to every server; remove it from all \
         routes"
    );
    Some(warning(routes, ConfigError::new(first, what)))
}

/// The tables of an array of tables.
fn elements<'t, 'a>(table: &'t DeTable<'a>, name: &str) -> impl Iterator<Item = &'t DeTable<'a>> {
    let array = member(table, name).and_then(|value| value.get_ref().as_array());
    array.into_iter().flat_map(|all| all.iter()).filter_map(|value| value.get_ref().as_table())
}

fn member<'t, 'a>(table: &'t DeTable<'a>, name: &str) -> Option<&'t Spanned<DeValue<'a>>> {
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
}

fn member_of<'t, 'a>(
    value: &'t Spanned<DeValue<'a>>,
    name: &str,
) -> Option<&'t Spanned<DeValue<'a>>> {
    member(value.get_ref().as_table()?, name)
}

/// Returns the warning about a program that does not exist where its command would be looked for.
fn missing_program(stdio: &StdioUpstream, place: &Spanned<DeValue<'_>>) -> Option<ConfigError> {
    let program = stdio.command.first()?;
    // As at the start of the child: the PATH of `upstream.env` takes precedence over the inherited PATH.
    let own = stdio.env.iter().find(|(name, _)| *name == OsStr::new("PATH"));
    let inherited = std::env::var_os("PATH");
    let paths = own.map(|(_, paths)| paths.as_os_str()).or(inherited.as_deref());
    let here = std::env::current_dir().unwrap_or_default();
    let folders = [stdio.cwd.as_deref().unwrap_or(&here), &*here];
    if programs::is_there(program, paths, &folders) {
        return None;
    }
    let first = place.get_ref().as_array().and_then(|parts| parts.first());
    let span = first.unwrap_or(place).span();
    let what = if program.as_encoded_bytes().contains(&b'/') {
        "this program is not there, or may not be executed"
    } else {
        "this program is in no folder of PATH; install it, or give its full path"
    };
    Some(ConfigError::new(span, what))
}

/// Warns about a server whose sessions exist in one process only, if `linger` is set: `linger` is only useful if a load
/// balancer has another replica, which would not know these sessions.
fn lone_session(routes: &Routes, place: &Spanned<DeValue<'_>>) -> Option<ConfigError> {
    if routes.fleet().is_some() || routes.server().linger.is_zero() {
        return None;
    }
    let what = "with several replicas, as server.linger suggests, a session of this server is known to one replica \
                only; add [fleet] to the file of each replica, or let the load balancer send each Mcp-Session-Id \
                to the replica that gave it (docs/deploy.md)";
    Some(ConfigError::new(place.span(), what))
}

/// Returns the warning about a route whose server is this proxy itself.
fn own_listener(
    routes: &Routes,
    route: &Route,
    place: &Spanned<DeValue<'_>>,
) -> Option<ConfigError> {
    let Upstream::Http(http) = &route.upstream else { return None };
    let url = http.url.as_ref().or(http.sse.as_ref())?;
    let listeners =
        [("[server]", Some(routes.server().listen)), ("[admin]", routes.admin().listen)];
    let own = listeners.iter().find(|(_, listen)| listen.is_some_and(|listen| is_at(url, listen)));
    let name = match own {
        Some((name, _)) => name,
        None if routes
            .server()
            .public_url
            .as_ref()
            .is_some_and(|own| own.origin() == url.origin()) =>
        {
            "`public_url`"
        }
        None => return None,
    };
    let what = format!(
        "this is the address of {name}, so Milepost would ask itself; the address of the server is expected"
    );
    Some(ConfigError::new(place.span(), what))
}

/// Returns the warning about a header that names users, if no front is trusted to set it.
fn silent_principal(routes: &Routes, server: &DeTable<'_>) -> Option<ConfigError> {
    let place =
        member(server, "principal").filter(|_| routes.server().trusted_proxies.is_empty())?;
    let what = "nobody is believed in this header; the address of the front in `trusted_proxies` is \
                expected, such as trusted_proxies = [\"10.0.0.7\"]";
    Some(ConfigError::new(place.span(), what))
}

/// Whether a URL leads to `listen`, an address of this machine.
fn is_at(url: &Url, listen: SocketAddr) -> bool {
    let address = match url.host() {
        Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => Some(address.to_canonical()),
        // `localhost` may be the IPv4 or the IPv6 loopback address. Other names are not resolved, because checking a
        // file must not use the network.
        Some(Host::Domain("localhost")) => None,
        Some(Host::Domain(_)) | None => return false,
    };
    let own = listen.ip().to_canonical();
    let fits = match address {
        None => own.is_loopback() || own.is_unspecified(),
        Some(address) => address == own || (own.is_unspecified() && address.is_loopback()),
    };
    fits && url.port_or_known_default() == Some(listen.port()) && listen.port() != 0
}

/// The dialects that routes, tools and `[defaults]` name.
fn named_dialects(table: &DeTable<'_>) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (key, value) in table {
        // Every table is searched: `dialects` may be in `[defaults]`, in a route and in each of its tools.
        match value.get_ref() {
            DeValue::Table(inner) => named.extend(named_dialects(inner)),
            DeValue::Array(parts) => {
                for part in parts.iter() {
                    match part.get_ref() {
                        DeValue::Table(inner) => named.extend(named_dialects(inner)),
                        DeValue::String(name) if key.get_ref() == "dialects" => {
                            named.insert(name.to_string());
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    named
}

fn unused_dialect(section: &DeTable<'_>, named: &BTreeSet<String>) -> Option<ConfigError> {
    let name = member(section, "name")?;
    let DeValue::String(text) = name.get_ref() else { return None };
    if named.contains(&**text) {
        return None;
    }
    let what = format!(
        "no route uses the dialect {text:?}; name it in `dialects` of a route or of [defaults], such as \
         dialects = [\"defaults\", {text:?}]"
    );
    Some(ConfigError::new(name.span(), what))
}

/// Returns the warning about a dialect whose reports contain neither a value nor a text.
fn empty_dialect(section: &DeTable<'_>) -> Option<ConfigError> {
    let has_content =
        ["progress", "message", "final"].iter().any(|key| member(section, key).is_some());
    let name = member(section, "name").filter(|_| !has_content)?;
    let what = "this dialect has neither `progress` nor `message`, so a client gets no value and no text from it; add \
                a pointer, such as progress = \"/params/percent\"";
    Some(ConfigError::new(name.span(), what))
}

/// Returns the warnings about pointers that find nothing in a valid notification.
fn pointers(section: &DeTable<'_>) -> Vec<ConfigError> {
    if member(section, "method").is_none() {
        return Vec::new();
    }
    let stray = |key: &&str| {
        let value = member(section, key)?;
        let value = member_of(value, "pointer").unwrap_or(value);
        let DeValue::String(pointer) = value.get_ref() else { return None };
        let first = pointer.strip_prefix('/')?.split(['/', '#']).next()?;
        if ["params", "method", "jsonrpc"].contains(&first) {
            return None;
        }
        let what = format!(
            "a notification has its values in `params`, where this pointer does not look; did you mean \
             \"/params{pointer}\"?"
        );
        Some(ConfigError::new(value.span(), what))
    };
    POINTERS.iter().filter_map(stray).collect()
}

/// Returns the error for a file that is not TOML but a known other format.
pub(super) fn other_format(path: &Path, text: &str) -> Option<&'static str> {
    let named = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
    // A byte order mark is not part of the text.
    let begin = text.trim_start_matches('\u{feff}').trim_start();
    let is_json = || serde_json::from_str::<serde::de::IgnoredAny>(begin).is_ok();
    if named == "json" || begin.starts_with('{') || (begin.starts_with('[') && is_json()) {
        return Some(
            "this file is JSON, and a route file is TOML; `milepost check --import FILE` makes routes of a \
             client's file of servers",
        );
    }
    let mut lines = begin.lines().map(str::trim_end);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    let is_key = first.split_once(':').is_some_and(|(key, rest)| {
        !key.contains(['=', '[', '"', ' ']) && (rest.is_empty() || rest.starts_with(' '))
    });
    (["yaml", "yml"].contains(&&*named) || first == "---" || is_key)
        .then_some("this file is YAML, and a route file is TOML; `milepost schema` and proxy.toml show its keys")
}
