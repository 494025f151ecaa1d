//! The file of Codex: `[mcp_servers.NAME]` in TOML. Only the command and its arguments change; every
//! other byte stays.

use std::fmt::Write;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::AdoptError;
use super::change::{Change, FileTerms, ServerFate};
use super::document::{self, Edit};
use super::entry::{Choice, quote};
use super::listed::ListedServer;
use super::our_command::{OurCommand, WRAP, is_milepost, wrap_at};
use super::show::{hidden_words, plain};

/// The key of the table of servers.
pub(super) const SERVERS: &str = "mcp_servers";

/// Returns the change of a file of Codex.
///
/// # Errors
/// If the file is not TOML, has no servers, or a named server cannot be changed.
pub(super) fn change(terms: &FileTerms<'_>, text: &str) -> Result<Change, AdoptError> {
    let wrong = |at: usize, what: &str| AdoptError::wrong(terms.path, text, at, what);
    let file = parse(terms.path, text)?;
    let servers = servers(&file).filter(|servers| !servers.is_empty()).ok_or_else(|| {
        wrong(0, "no servers are here; a file with [mcp_servers.NAME] is expected")
    })?;
    let names: Vec<&str> = servers.iter().map(|(name, _)| &**name.get_ref()).collect();
    terms.all_known(&names)?;
    let ours = terms.our_command()?;
    let (mut edits, mut fates, mut shown) = (Vec::new(), Vec::new(), String::new());
    for (name, value) in servers {
        let name = name.get_ref();
        let Some((choice, server)) = terms.choice(name).zip(value.get_ref().as_table()) else {
            continue;
        };
        let is_inline = text.get(value.span()).is_some_and(|text| text.starts_with('{'));
        let server = CodexServer { text, server, is_inline };
        let fate = match terms.args.undo {
            true => server.unwrap(),
            false => server.wrap(&ours),
        };
        match fate {
            Ok(Some(change)) => {
                let action = if terms.args.undo { "unwrapped" } else { "wrapped" };
                fates.push(ServerFate::new(name, action, action));
                let words = hidden_words(&change.words).join(" ");
                let _ = writeln!(shown, "+ {}: {}", plain(name), plain(&words));
                edits.extend(change.edits);
            }
            Ok(None) => {
                let words = if terms.args.undo { "not wrapped" } else { "wrapped already" };
                fates.push(ServerFate::new(name, "unchanged", words));
            }
            Err((at, why)) if choice == Choice::ByName => {
                return Err(wrong(at, &format!("{}: {why}", plain(name))));
            }
            Err((at, why)) => {
                let (line, column) = document::line_and_column(text, at);
                let words = format!("left alone ({line}:{column}): {why}");
                fates.push(ServerFate::new(name, "left", words));
            }
        }
    }
    let new = (!edits.is_empty()).then(|| document::apply(text, edits));
    if new.as_ref().is_some_and(|new| DeTable::parse(new).is_err()) {
        return Err(wrong(0, "the form of this file is not known; nothing was written"));
    }
    Ok(Change::of_other(terms, fates, &shown, new))
}

/// Returns the servers of a file, sorted by name.
///
/// # Errors
/// If the file is not TOML.
pub(super) fn listed(path: &Path, text: &str) -> Result<Vec<ListedServer>, AdoptError> {
    let file = parse(path, text)?;
    let mut found = Vec::new();
    for (name, value) in servers(&file).into_iter().flatten() {
        let Some(server) = value.get_ref().as_table() else { continue };
        let server = CodexServer { text, server, is_inline: false };
        let is_wrapped = server.wrap_at().is_some();
        found.push(ListedServer { name: name.get_ref().to_string(), project: None, is_wrapped });
    }
    Ok(found)
}

fn parse<'t>(path: &Path, text: &'t str) -> Result<Spanned<DeTable<'t>>, AdoptError> {
    DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        AdoptError::wrong(path, text, at, error.message())
    })
}

/// Returns the table of the servers, if the file has one.
fn servers<'t, 'a>(file: &'t Spanned<DeTable<'a>>) -> Option<&'t DeTable<'a>> {
    member(file.get_ref(), SERVERS).and_then(|(_, value)| value.get_ref().as_table())
}

/// The edits of a server, and its command afterwards.
struct CodexChange {
    edits: Vec<Edit>,
    words: Vec<String>,
}

/// The change of a server, `None` if no change is needed, or the place and the reason why it cannot be changed.
type CodexFate = Result<Option<CodexChange>, (usize, String)>;

/// A word of the arguments, with its place.
type PlacedWord<'t> = (std::ops::Range<usize>, &'t str);

struct CodexServer<'t, 'a> {
    text: &'t str,
    server: &'t DeTable<'a>,
    /// Whether the server is an inline table (between braces).
    is_inline: bool,
}

impl<'t, 'a> CodexServer<'t, 'a> {
    fn command(&self) -> Option<(&'t Spanned<DeValue<'a>>, &'t str)> {
        let (_, value) = member(self.server, "command")?;
        Some((value, value.get_ref().as_str()?))
    }

    /// Returns the arguments, each with its place.
    fn args(&self) -> Result<Vec<PlacedWord<'t>>, (usize, String)> {
        let Some((_, value)) = member(self.server, "args") else { return Ok(Vec::new()) };
        let expected = || (value.span().start, "\"args\" is not a list of strings".to_owned());
        let DeValue::Array(elements) = value.get_ref() else { return Err(expected()) };
        let word =
            |element: &'t Spanned<DeValue<'a>>| Some((element.span(), element.get_ref().as_str()?));
        elements.iter().map(word).collect::<Option<_>>().ok_or_else(expected)
    }

    /// Returns the position of `wrap` in the arguments, if Milepost is in front of the server.
    fn wrap_at(&self) -> Option<usize> {
        let args = self.args().ok()?;
        let args: Vec<_> = args.iter().map(|(_, word)| Some((*word).to_owned())).collect();
        wrap_at(self.command()?.1, &args)
    }

    fn raw(&self, span: std::ops::Range<usize>) -> &'t str {
        self.text.get(span).unwrap_or_default()
    }

    fn wrap(&self, ours: &OurCommand) -> CodexFate {
        let Some((value, command)) = self.command() else { return Err(self.lines()) };
        if self.wrap_at().is_some() {
            return Ok(None);
        }
        if is_milepost(command) {
            return Err((value.span().start, "the server is Milepost itself".to_owned()));
        }
        if command.trim().is_empty() || command.starts_with('-') {
            return Err((value.span().start, "the command is empty or begins with `-`".to_owned()));
        }
        let args = self.args()?;
        let raw = self.raw(value.span());
        let begin = ours.args().map(quote).collect::<Vec<_>>().join(", ");
        let list = format!("{begin}, \"--\", {raw}");
        let mut edits = vec![Edit::replace(value.span(), quote(&ours.program))];
        edits.push(match (member(self.server, "args"), args.first()) {
            (_, Some((first, _))) => Edit::insert(first.start, format!("{list}, ")),
            (Some((_, empty)), None) => Edit::insert(empty.span().start + 1, list),
            (None, None) => {
                let before = if self.is_inline { ", " } else { "\n" };
                let list = format!("{before}args = [{begin}, {raw}]");
                Edit::insert(value.span().end, list)
            }
        });
        let words = ours.words().chain(["--", command]).map(str::to_owned);
        let words = words.chain(args.iter().map(|(_, word)| (*word).to_owned())).collect();
        Ok(Some(CodexChange { edits, words }))
    }

    fn unwrap(&self) -> CodexFate {
        let (Some((value, _)), Some(wrap)) = (self.command(), self.wrap_at()) else {
            return Ok(None);
        };
        let args = self.args()?;
        let by_hand = || {
            let why = "it was wrapped by hand: options stand behind `wrap`";
            (value.span().start, why.to_owned())
        };
        let at = match args.get(wrap + 1) {
            Some((_, "--")) => wrap + 2,
            Some((_, word)) if word.starts_with('-') => return Err(by_hand()),
            _ => wrap + 1,
        };
        let Some((target, command)) = args.get(at) else { return Err(by_hand()) };
        let mut edits = vec![Edit::replace(value.span(), self.raw(target.clone()))];
        let first = args.first().map_or(target.start, |(span, _)| span.start);
        let list = member(self.server, "args");
        edits.extend(match (args.get(at + 1), list) {
            (Some((next, _)), _) => Some(Edit::remove(first..next.start)),
            // Without `--`, `adopt` itself added the list, so the list is removed.
            (None, Some((_, list))) if at == wrap + 1 && value.span().end <= list.span().start => {
                Some(Edit::remove(value.span().end..list.span().end))
            }
            (None, _) => Some(Edit::remove(first..target.end)),
        });
        let rest = args.iter().skip(at + 1).map(|(_, word)| (*word).to_owned());
        let words = std::iter::once((*command).to_owned()).chain(rest).collect();
        Ok(Some(CodexChange { edits, words }))
    }

    /// Returns the lines that the user is to write for a server at a URL, and the place for them.
    fn lines(&self) -> (usize, String) {
        let url = member(self.server, "url");
        let at = url.or_else(|| member(self.server, "command")).map_or(0, |(at, _)| at);
        let Some(url) = url.and_then(|(_, value)| value.get_ref().as_str()) else {
            return (at, "the server has neither a \"command\" nor a \"url\"".to_owned());
        };
        let variable = member(self.server, "bearer_token_env_var");
        let variable = variable.and_then(|(_, value)| value.get_ref().as_str());
        let (mut words, mut more) = (vec![quote(WRAP)], String::new());
        if let Some(variable) = variable {
            words.extend([quote("--bearer-env"), quote(variable)]);
            more = format!(", env_vars = [{}]", quote(variable));
        }
        words.push(quote(url));
        let list = words.join(", ");
        let what = "a server at an address cannot be edited safely here; write in the place of url and headers: ";
        (at, format!("{what}command = \"milepost\", args = [{list}]{more}"))
    }
}

fn member<'t, 'a>(table: &'t DeTable<'a>, name: &str) -> Option<(usize, &'t Spanned<DeValue<'a>>)> {
    let found = table.iter().find(|(key, _)| key.get_ref() == name)?;
    Some((found.0.span().start, found.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text wrapped, or unwrapped if `undo`.
    fn changed(text: &str, undo: bool) -> String {
        let file = DeTable::parse(text).unwrap();
        let (_, value) = member(file.get_ref(), SERVERS).unwrap();
        let mut edits = Vec::new();
        for (_, value) in value.get_ref().as_table().unwrap() {
            let is_inline = text[value.span()].starts_with('{');
            let server =
                CodexServer { text, server: value.get_ref().as_table().unwrap(), is_inline };
            let fate = if undo {
                server.unwrap()
            } else {
                server.wrap(&OurCommand::direct("/opt/milepost"))
            };
            edits.extend(fate.unwrap().into_iter().flat_map(|change| change.edits));
        }
        document::apply(text, edits)
    }

    #[track_caller]
    fn check(before: &str, after: &str) {
        let (before, after) =
            (format!("# mine\n{before}# end\n"), format!("# mine\n{after}# end\n"));
        assert_eq!(changed(&before, false), after);
        assert_eq!(changed(&after, false), after, "not the same twice");
        assert_eq!(changed(&after, true), before, "not undone");
    }

    #[test]
    fn commands_are_put_behind_wrap_and_given_back() {
        check(
            "[mcp_servers.a]\ncommand = 'node' # why\nargs = [\"x.js\", 'y']\nenv = { A = \"1\" }\n",
            "[mcp_servers.a]\ncommand = \"/opt/milepost\" # why\nargs = [\"wrap\", \"--\", 'node', \"x.js\", 'y']\nenv = { A = \"1\" }\n",
        );
        check(
            "[mcp_servers.a]\ncommand = \"a\"\n",
            "[mcp_servers.a]\ncommand = \"/opt/milepost\"\nargs = [\"wrap\", \"a\"]\n",
        );
        check(
            "mcp_servers.a = { command = \"a\" }\n",
            "mcp_servers.a = { command = \"/opt/milepost\", args = [\"wrap\", \"a\"] }\n",
        );
        check(
            "[mcp_servers.a]\nargs = []\ncommand = \"a\"\n",
            "[mcp_servers.a]\nargs = [\"wrap\", \"--\", \"a\"]\ncommand = \"/opt/milepost\"\n",
        );
    }

    #[test]
    fn a_server_at_an_address_gets_the_lines_to_write() {
        let text = "[mcp_servers.a]\nurl = \"https://a.b/mcp\"\nbearer_token_env_var = \"T\"\n";
        let file = DeTable::parse(text).unwrap();
        let (_, value) = member(file.get_ref(), SERVERS).unwrap();
        let server = value.get_ref().as_table().unwrap().iter().next().unwrap().1;
        let server =
            CodexServer { text, server: server.get_ref().as_table().unwrap(), is_inline: false };
        let Err((_, why)) = server.wrap(&OurCommand::direct("milepost")) else { panic!("edited") };
        let lines = r#"command = "milepost", args = ["wrap", "--bearer-env", "T", "https://a.b/mcp"], env_vars = ["T"]"#;
        assert!(why.ends_with(lines), "{why}");
    }
}
