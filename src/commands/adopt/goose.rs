//! The file of goose: `extensions` in YAML. goose itself rewrites its file, so `adopt` does not edit it but shows the
//! lines to write.

use std::fmt::Write;

use super::AdoptError;
use super::change::{Change, FileTerms, ServerFate};
use super::entry::quote;
use super::listed::ListedServer;
use super::our_command::{OurCommand, wrap_at};
use super::show::{hidden_words, plain};

/// Maximum number of servers of one file that are examined.
const SERVERS_MAX: usize = 1000;

/// A server in the file. Only simple lines of YAML are understood.
#[derive(Debug, Default, PartialEq)]
struct GooseServer {
    name: String,
    command: String,
    args: Vec<String>,
    address: String,
}

/// Returns the lines that the user is to write into a file of goose.
///
/// # Errors
/// If the file has no extensions with commands or addresses.
pub(super) fn change(terms: &FileTerms<'_>, text: &str) -> Result<Change, AdoptError> {
    let servers: Vec<GooseServer> =
        servers(text).into_iter().filter(GooseServer::is_external).collect();
    if servers.is_empty() {
        let what =
            "no servers are here; a file with `extensions` that have a `cmd` or `uri` is expected";
        return Err(AdoptError::wrong(terms.path, text, 0, what));
    }
    terms.all_known(&servers.iter().map(|server| &*server.name).collect::<Vec<_>>())?;
    let ours = terms.our_command()?;
    let (mut fates, mut shown) = (Vec::new(), String::new());
    for server in servers {
        if terms.choice(&server.name).is_none() {
            continue;
        }
        let wrap = server.wrap_at();
        if wrap.is_some() != terms.args.undo {
            let words = if terms.args.undo { "not wrapped" } else { "wrapped already" };
            fates.push(ServerFate::new(&server.name, "unchanged", words));
            continue;
        }
        let words = "left alone: YAML cannot be edited safely; write these lines in its place";
        fates.push(ServerFate::new(&server.name, "left", words));
        let command = match terms.args.undo {
            true => server.unwrapped(wrap.unwrap_or_default()),
            false => server.wrapped(&ours),
        };
        let _ = writeln!(shown, "{}", lines(&server.name, &command));
    }
    Ok(Change::of_other(terms, fates, &shown, None))
}

/// Returns the servers of a file, in the file's order.
pub(super) fn listed(text: &str) -> Vec<ListedServer> {
    let servers = servers(text).into_iter().filter(GooseServer::is_external);
    let listed = |server: GooseServer| {
        let is_wrapped = server.wrap_at().is_some();
        ListedServer { name: server.name, project: None, is_wrapped }
    };
    servers.map(listed).collect()
}

impl GooseServer {
    /// Whether the server is an external program or URL, and not built into goose.
    fn is_external(&self) -> bool {
        !self.command.is_empty() || !self.address.is_empty()
    }

    /// Returns the position of `wrap` in the arguments, if Milepost is in front of the server.
    fn wrap_at(&self) -> Option<usize> {
        let args: Vec<_> = self.args.iter().cloned().map(Some).collect();
        wrap_at(&self.command, &args)
    }

    /// Returns the command behind Milepost, as a list of words.
    fn wrapped(&self, ours: &OurCommand) -> Vec<String> {
        let ours = ours.words().map(str::to_owned);
        if self.command.is_empty() {
            return ours.chain([self.address.clone()]).collect();
        }
        ours.chain(["--".to_owned(), self.command.clone()]).chain(self.args.clone()).collect()
    }

    /// Returns the command without Milepost, whose `wrap` is at the index `wrap` of the arguments.
    fn unwrapped(&self, wrap: usize) -> Vec<String> {
        let behind = self.args.iter().skip(wrap + 1);
        behind.skip_while(|word| *word == "--").cloned().collect()
    }
}

/// Returns the lines of an extension that has a command.
fn lines(name: &str, command: &[String]) -> String {
    let words = hidden_words(command);
    let (first, rest) = words.split_first().map_or(("", &[][..]), |(first, rest)| (&**first, rest));
    let args: Vec<String> = rest.iter().map(|word| quote(word)).collect();
    format!(
        "  {}:\n    type: stdio\n    cmd: {}\n    args: [{}]",
        plain(name),
        quote(first),
        args.join(", ")
    )
}

/// Returns the extensions of a file. Extensions in another form than goose writes are left out.
fn servers(text: &str) -> Vec<GooseServer> {
    let mut found: Vec<GooseServer> = Vec::new();
    let (mut is_inside, mut list) = (false, false);
    for line in text.lines() {
        let words = line.trim_start();
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        let depth = line.len() - words.len();
        if depth == 0 && !words.starts_with('-') {
            is_inside = words.trim_end() == "extensions:";
            continue;
        }
        if !is_inside {
            continue;
        }
        if let (2, Some(name)) = (depth, words.trim_end().strip_suffix(':')) {
            if found.len() < SERVERS_MAX {
                found.push(GooseServer { name: scalar(name), ..GooseServer::default() });
            }
            list = false;
            continue;
        }
        let Some(server) = found.last_mut() else { continue };
        if let Some(word) = words.strip_prefix("- ").filter(|_| list && depth >= 4) {
            server.args.push(scalar(word));
            continue;
        }
        let Some((key, value)) = words.split_once(':').filter(|_| depth == 4) else { continue };
        list = key == "args" && value.trim().is_empty();
        match key {
            "cmd" => server.command = scalar(value),
            "uri" => server.address = scalar(value),
            "args" if value.trim().starts_with('[') => {
                server.args = serde_json::from_str(value.trim()).unwrap_or_else(|_| {
                    let inner = value.trim().trim_matches(['[', ']']);
                    inner.split(',').map(scalar).filter(|word| !word.is_empty()).collect()
                });
            }
            _ => {}
        }
    }
    found
}

/// Returns the text of a plain or quoted scalar.
fn scalar(text: &str) -> String {
    let text = text.trim();
    if text.starts_with('"') {
        return serde_json::from_str(text).unwrap_or_else(|_| text.trim_matches('"').to_owned());
    }
    match text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        None => text.split(" #").next().unwrap_or_default().trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_read_as_goose_writes_them() {
        let text = "GOOSE_MODEL: x\nextensions:\n  developer:\n    type: builtin\n  reports:\n    args:\n    - server.js\n    - '-v'\n    cmd: node # why\n    type: stdio\n  far:\n    uri: \"https://a.b/mcp\"\n  flow:\n    cmd: npx\n    args: [\"-y\", \"x\"]\nother: 1\n";
        let one = |name: &str, command: &str, args: &[&str], address: &str| GooseServer {
            name: name.to_owned(),
            command: command.to_owned(),
            args: args.iter().map(|word| (*word).to_owned()).collect(),
            address: address.to_owned(),
        };
        let expected = [
            one("developer", "", &[], ""),
            one("reports", "node", &["server.js", "-v"], ""),
            one("far", "", &[], "https://a.b/mcp"),
            one("flow", "npx", &["-y", "x"], ""),
        ];
        assert_eq!(servers(text), expected);
        let words = servers(text)[1].wrapped(&OurCommand::direct("milepost"));
        let expected = "  reports:\n    type: stdio\n    cmd: \"milepost\"\n    args: [\"wrap\", \"--\", \"node\", \"server.js\", \"-v\"]";
        assert_eq!(lines("reports", &words), expected);
    }
}
