//! Converts a client's file of servers (`mcpServers`, or `servers` in VS Code) to routes.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value};

use super::import_forms;
use super::route_file::{RoutesError, read_text};
use crate::config::settings::toml_text::{key, list, plain as quote, table};
use crate::config::values::text::RoutePath;
use crate::policy_file::diagnostics::ConfigError;
use crate::policy_file::text::Spelling;
use crate::protocol::secret::{is_secret, is_secret_value};

/// The keys under which clients keep their servers.
const PLACES: [&[&str]; 6] = [
    &["mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["mcp"],
    &["context_servers"],
    &["mcp_servers"],
];

/// Variables that are always set, so that the user need not be asked to set them.
const ALWAYS_SET: [&str; 3] = ["HOME", "PATH", "USER"];

/// Keys whose content is in the route, and keys that do not describe the server. No note is printed about them.
const READ: [&str; 9] =
    ["command", "args", "env", "type", "url", "serverUrl", "httpUrl", "headers", "disabled"];

/// The key of the directory that a command runs in.
const FOLDER: &str = "upstream.cwd = ";

/// Converts a client's file of servers to a route file.
///
/// # Errors
/// If the file cannot be read or contains no servers.
pub fn import(path: &Path) -> Result<String, RoutesError> {
    let text = read_text(path)?;
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let file = if is_toml { import_forms::toml_file(&text) } else { json_file(&text) };
    let routes = file.map_err(|wrong| (wrong, None)).and_then(|file| routes_of(&text, &file));
    routes.map_err(|(wrong, key)| RoutesError::invalid(path, &text, wrong, key))
}

fn routes_of(text: &str, file: &Value) -> Result<String, (ConfigError, Option<String>)> {
    let projects = import_forms::servers_of_projects(file);
    let servers = servers(file);
    if servers.is_none() && projects.is_empty() {
        let what = "no servers are here; a file with \"mcpServers\" or \"servers\" is expected";
        return Err((ConfigError::new(0..0, what), None));
    }
    let mut page = ImportDraft::default();
    for (name, server) in servers.into_iter().flatten() {
        let server = import_forms::plain_form(server);
        page.server(name, &server).map_err(|what| {
            // The parser keeps no positions, but the first occurrence of the quoted name is nearly always where the
            // server begins.
            let at = text.find(&Value::from(name.as_str()).to_string()).unwrap_or(0);
            (ConfigError { at, what }, Some(name.clone()))
        })?;
    }
    for (project, names) in projects {
        let (project, names) = (quote(project), names.join(", "));
        let _ = writeln!(page.out, "\n# not taken over, servers of the project {project}: {names}");
    }
    Ok(page.finish())
}

fn json_file(text: &str) -> Result<Value, ConfigError> {
    serde_json::from_str(&without_comments(text)).map_err(|error| {
        let before = text.split_inclusive('\n').take(error.line().saturating_sub(1));
        // serde has a line and a column, and `ConfigError` an offset in bytes. Comments were replaced byte by byte, so
        // the offset is right in the text of the file too.
        let at = before.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default().to_owned();
        ConfigError { at, what }
    })
}

/// Returns the servers of a file, whichever key its client uses.
fn servers(file: &Value) -> Option<&Map<String, Value>> {
    let is_server = |value: &Value| ["command", "url"].iter().any(|key| value.get(key).is_some());
    let found = PLACES.iter().find_map(|place| {
        let servers = place.iter().try_fold(file, |value, key| value.get(key))?.as_object()?;
        servers.values().all(Value::is_object).then_some(servers)
    });
    // Last, the whole file may be the list. At least one object must look like a server, so that no other file matches.
    found.or_else(|| file.as_object().filter(|file| file.values().any(is_server)))
}

/// Editors allow comments in these files, and commas before a closing brace; both become spaces, so
/// that every other byte stays where it is.
fn without_comments(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let (mut at, mut comma) = (0, None);
    while at < bytes.len() {
        let end = match &bytes[at..] {
            [b'"', rest @ ..] => {
                let mut escaped = false;
                let is_end = |byte: &u8| {
                    let is_end = *byte == b'"' && !escaped;
                    escaped = *byte == b'\\' && !escaped;
                    is_end
                };
                at + rest.iter().position(is_end).map_or(rest.len(), |end| end + 1) + 1
            }
            [b'/', b'/', rest @ ..] => {
                at + 2 + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
            }
            [b'/', b'*', rest @ ..] => {
                let end = rest.windows(2).position(|pair| pair == b"*/");
                at + 2 + end.map_or(rest.len(), |end| end + 2)
            }
            _ => at + 1,
        };
        match bytes[at] {
            b'/' if end > at + 1 => {
                bytes[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|b| *b = b' ');
            }
            b',' => comma = Some(at),
            b'}' | b']' => {
                if let Some(comma) = comma.take() {
                    bytes[comma] = b' ';
                }
            }
            byte if !byte.is_ascii_whitespace() => comma = None,
            _ => {}
        }
        at = end;
    }
    // Only whole comments were replaced, each byte by a space, so the text is still valid UTF-8.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// The route file that is being written.
#[derive(Default)]
struct ImportDraft {
    out: String,
    paths: BTreeSet<String>,
    variables: BTreeSet<String>,
    /// Notes for the reader about the server that is being printed.
    notes: Vec<String>,
}

impl ImportDraft {
    fn server(&mut self, name: &str, server: &Value) -> Result<(), String> {
        let path = self.path(name);
        let kind = text(server, "type")?.unwrap_or_default();
        let url =
            ["url", "serverUrl", "httpUrl"].iter().find_map(|key| text(server, key).transpose());
        let mut keys = vec![format!("path = {}", quote(&path))];
        match (text(server, "command")?, url.transpose()?) {
            (Some(command), _) => keys.extend(self.command(name, command, server)?),
            (None, Some(url)) if kind.to_lowercase().starts_with("ws") || kind == "websocket" => {
                let _ = url;
                let what =
                    format!("# {}: a server of the type {kind:?} cannot be reached", quote(name));
                let _ = writeln!(self.out, "\n{what}");
                return Ok(());
            }
            (None, Some(url)) => keys.extend(self.http(name, kind, url, server)?),
            (None, None) => {
                return Err("\"command\" or \"url\" is expected".to_owned());
            }
        }
        let others = server.as_object().into_iter().flat_map(Map::keys);
        let has_folder = keys.iter().any(|key| key.starts_with(FOLDER));
        let is_read = |key: &str| READ.contains(&key) || (key == "cwd" && has_folder);
        let others: Vec<&str> = others.map(String::as_str).filter(|key| !is_read(key)).collect();
        if !others.is_empty() {
            self.notes.push(format!("not taken over: {}", others.join(", ")));
        }
        let is_disabled = server.get("disabled") == Some(&Value::Bool(true));
        if is_disabled {
            self.notes.push("it is disabled there".to_owned());
        }
        let mark = if is_disabled { "# " } else { "" };
        let _ = writeln!(self.out, "\n{mark}[[route]]");
        for key in keys {
            let _ = writeln!(self.out, "{mark}{key}");
        }
        for note in self.notes.drain(..) {
            let _ = writeln!(self.out, "# {note}");
        }
        Ok(())
    }

    fn finish(self) -> String {
        let mut head = "# Set in the environment what is taken from it:".to_owned();
        if self.variables.is_empty() {
            return self.out.trim_start().to_owned();
        }
        for variable in &self.variables {
            head += " ";
            head += variable;
        }
        format!("{head}\n{}", self.out)
    }

    /// Returns a route path made of a server's name.
    fn path(&mut self, name: &str) -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._~-".contains(c);
        let name: String = name.chars().map(|c| if fits(c) { c } else { '-' }).collect();
        let name = name.trim_matches(['-', '.']);
        let path = RoutePath::read(&format!("/{name}")).unwrap_or_else(|_| "/server".to_owned());
        // After characters that paths cannot have are replaced, another server may get the same path, so a number is
        // appended.
        let others = (2..).map(|number| format!("{path}-{number}"));
        let free = std::iter::once(path.clone()).chain(others).find(|p| !self.paths.contains(p));
        let path = free.unwrap_or(path);
        self.paths.insert(path.clone());
        path
    }

    fn command(
        &mut self,
        name: &str,
        command: &str,
        server: &Value,
    ) -> Result<Vec<String>, String> {
        let args = match server.get("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(args)) => args
                .iter()
                .map(plain)
                .collect::<Option<Vec<_>>>()
                .ok_or("a list of strings is expected as \"args\"")?,
            Some(_) => return Err("a list of strings is expected as \"args\"".to_owned()),
        };
        let mut parts = vec![quote(&self.references(command))];
        let mut flag = String::new();
        for (at, arg) in args.into_iter().enumerate() {
            let (before, value) = match arg.split_once('=') {
                Some((before, value)) if arg.starts_with('-') => (format!("{before}="), value),
                _ => (String::new(), &*arg),
            };
            let of = if before.is_empty() { &*flag } else { before.trim_end_matches('=') };
            let variable = match of.trim_start_matches('-') {
                "" => upper(&[name, &format!("arg{}", at + 1)]),
                flag => upper(&[name, flag]),
            };
            let shown = self.value(of, value, &variable);
            parts.push(quote(&format!("{}{shown}", before.replace("${", "$${"))));
            flag = if arg.starts_with('-') && before.is_empty() { arg } else { String::new() };
        }
        let mut keys = vec![format!("upstream.command = {}", list(parts))];
        let mut variables = Vec::new();
        for (variable, value) in pairs(server, "env")? {
            let shown = self.value(&variable, &value, &variable);
            variables.push(format!("{} = {}", key(&variable), quote(&shown)));
        }
        if !variables.is_empty() {
            keys.push(format!("upstream.env = {}", table(variables)));
        }
        // A relative directory starts from a directory that only the client knows, such as that of its project.
        if let Some(folder) = text(server, "cwd")?.map(|folder| self.references(folder))
            && (folder.starts_with('/') || folder.starts_with("${"))
        {
            keys.push(format!("{FOLDER}{}", quote(&folder)));
        }
        Ok(keys)
    }

    fn http(
        &mut self,
        name: &str,
        kind: &str,
        url: &str,
        server: &Value,
    ) -> Result<Vec<String>, String> {
        let path = url.split(['?', '#']).next().unwrap_or_default();
        // A client whose file names no transport tries both. The usual path `/sse` shows which one the server has.
        let is_sse = kind == "sse" || (kind.is_empty() && path.ends_with("/sse"));
        let (before, query) = url.split_once('?').unwrap_or((url, ""));
        let mut shown = self.references(before);
        for (at, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = self.value(key, value, &upper(&[name, key]));
            let _ = write!(shown, "{}{key}={value}", if at == 0 { '?' } else { '&' });
        }
        let place = if is_sse { "sse" } else { "url" };
        let mut keys = vec![format!("upstream.{place} = {}", quote(&shown))];
        let mut headers = Vec::new();
        for (header, value) in pairs(server, "headers")? {
            // The scheme stays readable in the file; only the credential after it is moved to the environment.
            let schemes = ["Bearer ", "Basic ", "Token "];
            let scheme = schemes.into_iter().find(|scheme| value.starts_with(scheme)).unwrap_or("");
            let rest = &value[scheme.len()..];
            let rest = self.value(&header, rest, &upper(&[name, &header]));
            headers.push(format!("{} = {}", key(&header), quote(&format!("{scheme}{rest}"))));
        }
        if !headers.is_empty() {
            keys.push(format!("headers.request.set = {}", table(headers)));
        }
        Ok(keys)
    }

    /// Returns a value in the form of a route file. A value that looks like a secret is replaced by a variable.
    fn value(&mut self, name: &str, value: &str, variable: &str) -> String {
        // A value with a reference does not contain the secret itself.
        let has_reference = value.contains("${");
        if has_reference || !(is_secret(name, value) || is_secret_value(value)) {
            return self.references(value);
        }
        self.variable(variable)
    }

    fn variable(&mut self, name: &str) -> String {
        let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = name.chars().map(fits).collect();
        let mut name = name.trim_matches('_').to_owned();
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            name.insert(0, '_');
        }
        let reference = format!("${{{name}}}");
        self.variables.insert(name);
        reference
    }

    /// Rewrites a client's references to variables to those of a route file.
    fn references(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out += before;
            let Some((inner, after)) = after.split_once('}') else {
                return out + "$${" + after;
            };
            let is_name = |name: &str| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            let plain = inner.strip_prefix("env:").unwrap_or(inner);
            let plain = plain.split(":-").next().unwrap_or(plain);
            if inner == "userHome" {
                out += "${HOME}";
            } else if let Some(input) = inner.strip_prefix("input:") {
                out += &self.variable(&input.to_ascii_uppercase());
            } else if is_name(plain) && !plain.starts_with("workspace") {
                out += &format!("${{{plain}}}");
                if !ALWAYS_SET.contains(&plain) {
                    self.variables.insert(plain.to_owned());
                }
            } else {
                // `${workspaceFolder}` and similar variables have a meaning only in the editor.
                self.notes.push(format!("${{{inner}}} is for you to fill in"));
                out += &format!("$${{{inner}}}");
            }
            rest = after;
        }
        out + rest
    }
}

/// Returns the name of a variable, made of several parts.
fn upper(parts: &[&str]) -> String {
    parts.join("_").to_ascii_uppercase()
}

/// Returns the member `key` if it is a string; an error if it is something else.
fn text<'a>(server: &'a Value, key: &str) -> Result<Option<&'a str>, String> {
    match server.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("a string is expected as {key:?}")),
    }
}

/// Returns the members of an object of strings.
fn pairs(server: &Value, key: &str) -> Result<Vec<(String, String)>, String> {
    let expected = || format!("an object of strings is expected as {key:?}");
    match server.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(members)) => {
            let pair = |(name, value)| Some((String::clone(name), plain(value)?));
            members.iter().map(pair).collect::<Option<_>>().ok_or_else(expected)
        }
        Some(_) => Err(expected()),
    }
}

/// Returns a string, or the text of another scalar that stands where a string is expected.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}
