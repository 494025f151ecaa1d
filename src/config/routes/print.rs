//! Prints the settings in effect as a route file without secrets.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::path::Path;

use http::{HeaderName, HeaderValue};
use url::Url;

use super::env::EnvValues;
use super::header_rules::HeaderRules;
use super::lifecycle::{Lifecycle, ServerInfo};
use super::route::{HttpUpstream, Route, StateSettings, StdioUpstream, Upstream};
use super::route_file::Routes;
use crate::config::settings::toml_text::{ShowText, key, list, path, plain as quote, table};
use crate::config::settings::{Setting, SettingScope};
use crate::config::values::text::PublicUrl;
use crate::config::values::{self, Word};
use crate::policy_file::text::Spelling;
use crate::progress::dialect::{CustomDialect, Dialect, Pointer};
use crate::progress::{CallPolicy, Policy};
use crate::protocol::secret::{is_secret, is_secret_value};

/// The text that is shown instead of a secret.
const HIDDEN: &str = "***";

/// Limit of a destination in a list of routes, in characters. A longer destination is cut, because a command may be a
/// whole script.
const DESTINATION_MAX: usize = 100;

impl Routes {
    /// Returns every setting in effect.
    pub fn print(&self) -> String {
        let mut page = RoutePrinter { out: String::new(), env_values: &self.env_values };
        page.scope("[server]", &self.server);
        if self.admin.listen.is_some() {
            page.scope("[admin]", &self.admin);
        }
        if let Some(fleet) = &self.fleet {
            page.scope("[fleet]", &fleet.settings());
        }
        if self.state.is_some() {
            page.scope("[state]", &StateSettings { dir: self.state.clone() });
        }
        for dialect in &self.dialects {
            if let Dialect::Custom(dialect) = dialect {
                page.dialect(dialect);
            }
        }
        for route in &self.routes {
            page.route(route, &self.policy(route));
        }
        page.out
    }

    /// Returns one line for each route: its path, and where it leads.
    pub fn list(&self) -> String {
        let page = RoutePrinter { out: String::new(), env_values: &self.env_values };
        let width = self.routes.iter().map(|route| route.path.len()).max().unwrap_or_default();
        let line = |route: &Route| format!("{:width$}  {}\n", route.path, page.destination(route));
        self.routes.iter().map(line).collect()
    }
}

/// The printed text of a route.
struct RoutePrinter<'a> {
    out: String,
    env_values: &'a EnvValues,
}

impl RoutePrinter<'_> {
    fn table(&mut self, name: &str) {
        let gap = if self.out.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.out, "{gap}{name}");
    }

    fn key(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.out, "{name} = {value}");
    }

    /// Returns a string as it is written in the file: values of the environment are shown as variables.
    fn written(&self, text: &str) -> String {
        let written = self.env_values.written(text).map(str::to_owned);
        // The text is read again as a route file, so a `${` that does not begin a variable must be doubled.
        written.unwrap_or_else(|| text.replace("${", "$${"))
    }

    fn text(&self, text: &str) -> String {
        quote(&self.written(text))
    }

    fn texts<'a>(&self, texts: impl IntoIterator<Item = &'a String>) -> String {
        list(texts.into_iter().map(|text| self.text(text)))
    }

    /// Adds a table of the settings of one scope.
    fn scope<S: SettingScope>(&mut self, name: &str, scope: &S) {
        self.table(name);
        for (key, value) in settings(scope, &|name, text| self.connection_text(name, text)) {
            self.key(key, value);
        }
    }

    /// Returns a string of a connection's settings as it is printed.
    fn connection_text(&self, name: Option<&str>, text: &str) -> String {
        match name {
            Some("certificate" | "key") => path(Path::new(text)),
            _ => self.text(text),
        }
    }

    fn dialect(&mut self, dialect: &CustomDialect) {
        self.table("[[dialect]]");
        self.key("name", quote(&dialect.name));
        if dialect.sources.is_empty() {
            self.key("method", self.texts(&dialect.methods));
        } else {
            self.key("source", list(dialect.sources.iter().map(|source| word(*source))));
        }
        let pointers = [
            ("request_id", &dialect.request_id),
            ("token", &dialect.token),
            ("progress", &dialect.progress),
            ("total", &dialect.total),
            ("message", &dialect.message),
        ];
        for (name, pointer) in pointers {
            if let Some(pointer) = pointer {
                self.key(name, self.text(pointer.as_str()));
            }
        }
        if let Some(last) = &dialect.last {
            let pointer = self.text(Pointer::as_str(&last.pointer));
            // JSON and TOML write scalars in the same way, except for strings.
            let equals = String::from_utf8_lossy(&last.equals);
            let equals = match crate::protocol::json::decode_str(&last.equals) {
                Some(words) => self.text(&words),
                None => equals.into_owned(),
            };
            self.key("final", format!("{{ pointer = {pointer}, equals = {equals} }}"));
        }
        self.key("scale", word(dialect.scale));
    }

    fn route(&mut self, route: &Route, policy: &Policy) {
        self.table("[[route]]");
        self.key("path", self.text(&route.path));
        if let Some(url) = &route.public_url {
            self.key("public_url", self.text(PublicUrl::spell(url).as_str()));
        }
        self.upstream(&route.upstream);
        if let Some(preset) = route.preset {
            self.key("preset", quote(preset.name));
        }
        self.key("opaque", route.opaque);
        self.headers("request", &route.request_headers);
        self.headers("response", &route.response_headers);
        for (key, value) in settings(route, &|_, text| self.text(text)) {
            self.key(key, value);
        }
        self.policy(policy);
    }

    fn upstream(&mut self, upstream: &Upstream) {
        match upstream {
            Upstream::Demo => self.key("upstream.demo", true),
            Upstream::Command(stdio) => self.stdio(stdio),
            Upstream::Http(http) => self.http(http),
        }
    }

    fn stdio(&mut self, stdio: &StdioUpstream) {
        let parts = self.command(&stdio.command).map(|part| quote(&part));
        self.key("upstream.command", list(parts));
        let show =
            |name: Option<&str>, text: &str| quote(&self.discreet(name.unwrap_or_default(), text));
        for (key, value) in settings(stdio, &show) {
            self.key(&format!("upstream.{key}"), value);
        }
    }

    fn http(&mut self, http: &HttpUpstream) {
        for (name, url) in [("upstream.url", &http.url), ("upstream.sse", &http.sse)] {
            if let Some(url) = url {
                self.key(name, quote(&self.url(url)));
            }
        }
        for (key, value) in settings(http, &|name, text| self.connection_text(name, text)) {
            self.key(&format!("upstream.{key}"), value);
        }
        if let Some(lifecycle) = &http.lifecycle {
            self.key("upstream.lifecycle", self.lifecycle(lifecycle, http.url.as_ref()));
        }
    }

    fn lifecycle(&self, lifecycle: &Lifecycle, endpoint: Option<&Url>) -> String {
        let place = |name: &str, url: &Option<Url>| {
            url.as_ref().map(|url| format!("{name} = {}", quote(&self.url_beside(endpoint, url))))
        };
        let server = lifecycle.server.as_ref().map(|ServerInfo { name, version }| {
            format!("server = {{ name = {}, version = {} }}", self.text(name), self.text(version))
        });
        let keys = [
            place("tools", &lifecycle.tools),
            place("initialize", &lifecycle.initialize),
            server,
            Some(format!("wrap_results = {}", lifecycle.wrap_results)),
            Some(format!("end_with_answer = {}", lifecycle.end_with_answer)),
        ];
        table(keys.into_iter().flatten())
    }

    fn command<'a>(
        &'a self,
        command: &'a [std::ffi::OsString],
    ) -> impl Iterator<Item = String> + 'a {
        command.iter().enumerate().map(|(at, part)| {
            // The secret after `--token` is recognised by the flag before it, not by its own text.
            let flag = at.checked_sub(1).and_then(|at| command.get(at));
            let flag = flag.map(|flag| flag.to_string_lossy()).filter(|flag| flag.starts_with('-'));
            self.discreet(&flag.unwrap_or_default(), &part.to_string_lossy())
        })
    }

    /// Returns a string, hidden if its name or the string itself looks like a secret.
    fn discreet(&self, name: &str, text: &str) -> String {
        let is_shown = self.env_values.written(text).is_some() || !is_secret(name, text);
        if is_shown { self.written(text) } else { HIDDEN.to_owned() }
    }

    fn url(&self, url: &Url) -> String {
        // A URL that contains variables is shown as it is written in the file, whatever it contains.
        if self.env_values.written(url.as_str()).is_some() {
            return self.written(url.as_str());
        }
        self.written(shown(url).as_str())
    }

    /// Returns `url` relative to that of an endpoint, with secret parts hidden.
    fn url_beside(&self, endpoint: Option<&Url>, url: &Url) -> String {
        if self.env_values.written(url.as_str()).is_some() {
            return self.written(url.as_str());
        }
        let shown = shown(url);
        let relative = endpoint.and_then(|endpoint| {
            let relative = endpoint.make_relative(&shown)?;
            // A URL that cannot be written relative to the endpoint is shown completely.
            endpoint.join(&relative).is_ok_and(|joined| joined == shown).then_some(relative)
        });
        self.written(relative.as_deref().unwrap_or(shown.as_str()))
    }

    fn headers(&mut self, direction: &str, rules: &HeaderRules) {
        let value = |value: &HeaderValue| match value.to_str() {
            Ok(text) if !value.is_sensitive() && !is_secret_value(text) => self.text(text),
            _ => quote(HIDDEN),
        };
        let file_of = |name: &HeaderName| {
            let file = rules.bearer_files.iter().find(|(known, _)| known == name);
            file.map(|(_, bearer)| self.text(&bearer.file().to_string_lossy()))
        };
        let set = rules.set.iter().map(|(name, text)| match file_of(name) {
            Some(file) => format!("{name} = {{ bearer_file = {file} }}"),
            None => format!("{name} = {}", value(text)),
        });
        let remove = list(rules.remove.iter().map(|name| quote(name.as_str())));
        let cookies = if rules.cookie_path { ", cookie_path = true" } else { "" };
        let rules = format!("{{ set = {}, remove = {remove}{cookies} }}", table(set));
        self.key(&format!("headers.{direction}"), rules);
    }

    fn policy(&mut self, policy: &Policy) {
        let show = |name: Option<&str>, text: &str| match name {
            Some(name) => quote(&self.discreet(name, text)),
            None => quote(text),
        };
        let tools = policy.tools.iter().map(|(tool, policy)| {
            let keys = grouped(of_calls(policy, &show).0).into_iter();
            let keys = keys.map(|(name, value)| format!("{name} = {value}"));
            (format!("tools.{}", key(tool)), table(keys))
        });
        let tools: Vec<_> = tools.collect();
        let (of_calls, paced) = of_calls(&policy.call, &show);
        for (key, value) in grouped(of_calls.into_iter().chain(settings(policy, &show))) {
            self.key(key, value);
        }
        if !paced.is_empty() {
            let paced: Vec<_> =
                paced.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            let _ = writeln!(self.out, "# {}; 0 where none is needed", paced.join(", "));
        }
        for (key, value) in tools {
            self.key(&key, value);
        }
    }

    fn destination(&self, route: &Route) -> String {
        let place = match &route.upstream {
            Upstream::Demo => "the embedded legacy server".to_owned(),
            Upstream::Command(stdio) => self.command(&stdio.command).collect::<Vec<_>>().join(" "),
            Upstream::Http(http) => {
                let urls = [&http.url, &http.sse].into_iter().flatten();
                urls.map(|url| self.url(url)).collect::<Vec<_>>().join(" and ")
            }
        };
        // A line break or an escape within a command would break the list, or change the terminal.
        let place = place.replace(char::is_control, " ");
        let mut line: String = place.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = line.char_indices().nth(DESTINATION_MAX) {
            line.truncate(end);
            line.push('…');
        }
        if route.opaque { line + " (piped)" } else { line }
    }
}

/// Returns a URL with the secret values of its query hidden.
fn shown(url: &Url) -> Url {
    let mut shown = url.clone();
    if url.query_pairs().any(|(name, value)| is_secret(&name, &value)) {
        // Only the value is hidden: the name of the parameter still shows which parameter is set.
        let hide = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            let value = if is_secret(&name, &value) { "***".into() } else { value.into_owned() };
            (name.into_owned(), value)
        };
        let pairs: Vec<(String, String)> = url.query_pairs().map(hide).collect();
        shown.query_pairs_mut().clear().extend_pairs(pairs);
    }
    shown
}

/// The settings in effect, each with its key.
type PrintedSettings = Vec<(&'static str, String)>;

/// Returns the settings in effect, each with its key.
fn settings<S: SettingScope>(scope: &S, show: ShowText<'_>) -> PrintedSettings {
    let print = |setting: &Setting<S>| Some((setting.key, setting.print(scope, show)?));
    S::SETTINGS.iter().filter_map(print).collect()
}

/// Returns the settings of calls in effect, by key, and separately the pacing times, whose values depend on the client
/// that connects.
fn of_calls(policy: &CallPolicy, show: ShowText<'_>) -> (PrintedSettings, PrintedSettings) {
    let is_paced = |(key, _): &(&str, String)| {
        policy.spare_known_clients && ["first_after", "hold", "guard"].contains(key)
    };
    let (paced, plain) = settings(policy, show).into_iter().partition(is_paced);
    (plain, paced)
}

/// Returns settings by key, with those of one table combined to one value.
fn grouped(settings: impl IntoIterator<Item = (&'static str, String)>) -> PrintedSettings {
    let mut grouped: Vec<(&str, String, Vec<String>)> = Vec::new();
    for (key, value) in settings {
        match key.split_once('.') {
            None => grouped.push((key, value, Vec::new())),
            Some((group, key)) => {
                let key = format!("{key} = {value}");
                match grouped.iter_mut().find(|(known, ..)| *known == group) {
                    Some((_, _, keys)) => keys.push(key),
                    None => grouped.push((group, String::new(), vec![key])),
                }
            }
        }
    }
    let whole = |(key, value, keys): (_, String, Vec<String>)| match &keys[..] {
        [] => (key, value),
        _ => (key, table(keys)),
    };
    grouped.into_iter().map(whole).collect()
}

fn word<T: Word + PartialEq>(meaning: T) -> String {
    quote(values::word(meaning))
}
