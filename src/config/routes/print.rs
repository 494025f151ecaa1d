//! The settings of a route file as they are in effect, as a route file; secrets are not in it.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use url::Url;

use super::env::EnvValues;
use super::{
    HeaderRules, HttpUpstream, Lifecycle, Route, Routes, Server, ServerInfo, ServerTls,
    StdioUpstream, Upstream, ask,
};
use crate::config::settings::{ANSWER_REPAIRS, OFF, StateDir, Word};
use crate::progress::dialect::{CustomDialect, Dialect, Pointer};
use crate::progress::extract::Extract;
use crate::progress::{CallPolicy, Policy, Scale};
use crate::protocol::secret::{is_secret, is_secret_value};

/// What is shown of a secret.
const HIDDEN: &str = "***";

/// Characters of a destination in a list of routes. A longer destination is cut; a command may be a
/// whole script.
const DESTINATION_MAX: usize = 100;

impl Routes {
    /// Every setting as it is in effect.
    pub fn print(&self) -> String {
        let mut page = Page { out: String::new(), env_values: &self.env_values };
        page.server(&self.server);
        if let Some(listen) = self.admin.listen {
            page.table("[admin]");
            page.key("listen", quote(&listen.to_string()));
            if self.admin.bearer.is_some() {
                page.key("bearer", quote(HIDDEN));
            }
        }
        if let Some(state) = &self.state {
            page.table("[state]");
            page.key(
                "dir",
                match state {
                    StateDir::Off => quote(OFF),
                    StateDir::At(folder) => path(folder),
                },
            );
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

    /// One line for each route: its path, and where it leads.
    pub fn list(&self) -> String {
        let page = Page { out: String::new(), env_values: &self.env_values };
        let width = self.routes.iter().map(|route| route.path.len()).max().unwrap_or_default();
        let line = |route: &Route| format!("{:width$}  {}\n", route.path, page.destination(route));
        self.routes.iter().map(line).collect()
    }
}

/// What has been printed.
struct Page<'a> {
    out: String,
    env_values: &'a EnvValues,
}

impl Page<'_> {
    fn table(&mut self, name: &str) {
        let gap = if self.out.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.out, "{gap}{name}");
    }

    fn key(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.out, "{name} = {value}");
    }

    /// A string as it is written in a file: what the environment gave is shown by its name.
    fn written(&self, text: &str) -> String {
        let written = self.env_values.written(text).map(str::to_owned);
        written.unwrap_or_else(|| text.replace("${", "$${"))
    }

    fn text(&self, text: &str) -> String {
        quote(&self.written(text))
    }

    fn texts<'a>(&self, texts: impl IntoIterator<Item = &'a String>) -> String {
        list(texts.into_iter().map(|text| self.text(text)))
    }

    fn server(&mut self, server: &Server) {
        self.table("[server]");
        self.key("listen", quote(&server.listen.to_string()));
        self.key("allowed_hosts", self.texts(&server.allowed_hosts));
        self.key("allowed_origins", self.texts(&server.allowed_origins));
        self.key("insecure", server.insecure);
        if let Some(tls) = &server.tls {
            self.key("tls", certificate(tls));
        }
        if server.bearer.is_some() {
            self.key("bearer", quote(HIDDEN));
        }
        self.key("drain", time(server.drain));
        self.key("max_connections", server.max_connections);
        self.key("max_header_bytes", server.max_header_bytes);
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
            // JSON has no scalar that TOML would read as another.
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
        self.upstream(&route.upstream);
        self.key("opaque", route.opaque);
        self.headers("request", &route.request_headers);
        self.headers("response", &route.response_headers);
        self.key("connect_timeout", time(route.connect_timeout));
        self.key("idle_timeout", time_or_off(route.idle_timeout));
        self.key("upgrade_after", time_or_off(route.upgrade_after));
        self.key("upgrade_methods", self.texts(&route.upgrade_methods));
        self.key("keep_alive", time_or_off(route.keep_alive));
        self.key("own_get", route.own_get);
        if let Some(cors) = &route.cors {
            self.key("cors", format!("{{ origins = {} }}", self.texts(&cors.origins)));
        }
        self.key("max_request_bytes", route.max_request_bytes);
        self.key("max_streams", route.max_streams);
        self.key("max_sessions", route.max_sessions);
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
        if !stdio.env.is_empty() {
            let variables = stdio.env.iter().map(|(name, value)| {
                let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
                format!("{} = {}", key(&name), quote(&self.discreet(&name, &value)))
            });
            self.key("upstream.env", table(variables));
        }
        if let Some(folder) = &stdio.cwd {
            self.key("upstream.cwd", path(folder));
        }
        self.key("upstream.share", stdio.share);
        self.key("upstream.max_children", stdio.max_children);
        self.key("upstream.start_timeout", time(stdio.start_timeout));
        self.key("upstream.idle_timeout", time_or_off(stdio.idle_timeout));
        self.key("upstream.restart", stdio.restart);
        self.key("upstream.max_frame", stdio.max_frame);
        self.key("upstream.max_spill", stdio.max_spill);
    }

    fn http(&mut self, http: &HttpUpstream) {
        for (name, url) in [("upstream.url", &http.url), ("upstream.sse", &http.sse)] {
            if let Some(url) = url {
                self.key(name, quote(&self.url(url)));
            }
        }
        self.key("upstream.http2", http.http2);
        if let Some(file) = &http.ca_file {
            self.key("upstream.ca_file", path(file));
        }
        if let Some(files) = &http.client_certificate {
            self.key("upstream.client_certificate", certificate(files));
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
            let flag = at.checked_sub(1).and_then(|at| command.get(at));
            let flag = flag.map(|flag| flag.to_string_lossy()).filter(|flag| flag.starts_with('-'));
            self.discreet(&flag.unwrap_or_default(), &part.to_string_lossy())
        })
    }

    /// A string that goes by a name, unless both look like a secret.
    fn discreet(&self, name: &str, text: &str) -> String {
        let is_shown = self.env_values.written(text).is_some() || !is_secret(name, text);
        if is_shown { self.written(text) } else { HIDDEN.to_owned() }
    }

    fn url(&self, url: &Url) -> String {
        if self.env_values.written(url.as_str()).is_some() {
            return self.written(url.as_str());
        }
        self.written(shown(url).as_str())
    }

    /// A URL relative to that of an endpoint, which may hold what is not to be shown.
    fn url_beside(&self, endpoint: Option<&Url>, url: &Url) -> String {
        if self.env_values.written(url.as_str()).is_some() {
            return self.written(url.as_str());
        }
        let shown = shown(url);
        let relative = endpoint.and_then(|endpoint| {
            let relative = endpoint.make_relative(&shown)?;
            endpoint.join(&relative).is_ok_and(|joined| joined == shown).then_some(relative)
        });
        self.written(relative.as_deref().unwrap_or(shown.as_str()))
    }

    fn headers(&mut self, direction: &str, rules: &HeaderRules) {
        let value = |value: &HeaderValue| match value.to_str() {
            Ok(text) if !value.is_sensitive() && !is_secret_value(text) => self.text(text),
            _ => quote(HIDDEN),
        };
        let set = rules.set.iter().map(|(name, text)| format!("{name} = {}", value(text)));
        let remove = list(rules.remove.iter().map(|name| quote(name.as_str())));
        let rules = format!("{{ set = {}, remove = {remove} }}", table(set));
        self.key(&format!("headers.{direction}"), rules);
    }

    fn policy(&mut self, policy: &Policy) {
        self.key("mode", word(policy.mode));
        let pacing = policy.pacing;
        let (first_after, hold, guard) =
            (time(pacing.first_after), time(pacing.hold), time(pacing.guard));
        if policy.spare_known_clients {
            let _ = writeln!(
                self.out,
                "# first_after = {first_after}, hold = {hold}, guard = {guard}; 0 where none is needed"
            );
        } else {
            self.key("first_after", first_after);
            self.key("hold", hold);
            self.key("guard", guard);
        }
        self.key("min_interval", time(policy.min_interval));
        self.key("coalesce", word(policy.coalesce));
        let answers = &policy.answers;
        let made = [
            answers.response_id,
            answers.error_shape,
            answers.bare_result,
            answers.orphan_answer,
            answers.missing_id,
        ];
        let left = ANSWER_REPAIRS.iter().zip(made).filter(|(_, made)| !made);
        self.key("no_repair", list(left.map(|(name, _)| quote(name))));
        self.key("keep_original", policy.keep_original);
        if let Some(token_is) = policy.token_is {
            self.key("token_is", word(token_is));
        }
        self.key("words_in_2024", policy.words_in_2024);
        for (name, value) in call(&policy.call) {
            self.key(name, value);
        }
        let text = |name: &str, text: &str| quote(&self.discreet(name, text));
        let route = [
            format!("capabilities = {}", ask::object(&policy.capabilities, &text)),
            format!("log_level = {}", ask::log_level(policy.log_level)),
        ];
        let asked = table(ask::keys(&policy.call.ask, &text).into_iter().chain(route));
        self.key("ask", asked);
        for (tool, settings) in &policy.tools {
            let text = |name: &str, text: &str| quote(&self.discreet(name, text));
            let ask = table(ask::keys(&settings.ask, &text));
            let keys = call(settings).into_iter().map(|(name, value)| format!("{name} = {value}"));
            let keys = keys.chain([format!("ask = {ask}")]);
            self.key(&format!("tools.{}", key(tool)), table(keys));
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
        let place = place.replace(char::is_control, " ");
        let mut line: String = place.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = line.char_indices().nth(DESTINATION_MAX) {
            line.truncate(end);
            line.push('…');
        }
        if route.opaque { line + " (piped)" } else { line }
    }
}

/// A URL without what looks like a secret in its query.
fn shown(url: &Url) -> Url {
    let mut shown = url.clone();
    if url.query_pairs().any(|(name, value)| is_secret(&name, &value)) {
        let hide = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            let value = if is_secret(&name, &value) { "***".into() } else { value.into_owned() };
            (name.into_owned(), value)
        };
        let pairs: Vec<(String, String)> = url.query_pairs().map(hide).collect();
        shown.query_pairs_mut().clear().extend_pairs(pairs);
    }
    shown
}

/// The settings of a call by name.
fn call(policy: &CallPolicy) -> Vec<(&'static str, String)> {
    let beats = policy.heartbeat;
    let heartbeat = table([
        format!("enabled = {}", beats.enabled),
        format!("after = {}", time(beats.after)),
        format!("every = {}", time(beats.every)),
        format!("max = {}", time(beats.max)),
        format!("value = {}", word(beats.value)),
    ]);
    let scale = policy.scale.map(|scale| match scale {
        Scale::Percent => "\"percent\"".to_owned(),
        Scale::Unit => "\"unit\"".to_owned(),
        Scale::Of(total) => format!("\"{total}\""),
    });
    let dialects = policy.dialects.iter().map(|dialect| quote(dialect.name()));
    let patterns = |extract: &Extract| list(extract.patterns().map(quote));
    let keys = [
        ("dialects", Some(list(dialects))),
        ("extract", policy.extract.as_ref().map(patterns)),
        ("mask", Some(list(policy.masks.patterns().map(quote)))),
        ("heartbeat", Some(heartbeat)),
        ("on_fall", Some(word(policy.on_fall))),
        ("scale", scale),
        ("messages", Some(word(policy.messages))),
        ("call_timeout", Some(time_or_off(policy.call_timeout))),
        ("estimate", Some(policy.estimate.to_string())),
    ];
    keys.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// `text` as a TOML string.
pub(super) fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// `name` as a TOML key.
pub(super) fn key(name: &str) -> Cow<'_, str> {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) {
        name.into()
    } else {
        quoted_key(name).into()
    }
}

/// Keys know no strings of several lines.
fn quoted_key(name: &str) -> String {
    String::from_utf8_lossy(&crate::protocol::json::quote(name)).replace('\u{7f}', "\\u007f")
}

pub(super) fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

pub(super) fn table(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    if items.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", items.join(", ")) }
}

fn time(time: Duration) -> String {
    format!("\"{}\"", humantime::format_duration(time))
}

fn time_or_off(limit: Option<Duration>) -> String {
    limit.map_or_else(|| format!("\"{OFF}\""), time)
}

pub(super) fn word<T: Word + PartialEq>(meaning: T) -> String {
    let word = T::WORDS.iter().find(|(_, known)| *known == meaning);
    format!("\"{}\"", word.map_or("", |(word, _)| word))
}

/// Where a file is, wherever the page is read.
fn path(file: &Path) -> String {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    quote(&whole.to_string_lossy().replace("${", "$${"))
}

fn certificate(files: &ServerTls) -> String {
    format!("{{ certificate = {}, key = {} }}", path(&files.certificate), path(&files.key))
}
