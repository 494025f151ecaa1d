//! One server of a client's file: adds `milepost wrap` to its command, and removes it again.
//!
//! Each change is an edit of the text, so that the rest of the entry stays unchanged, and removal restores the text
//! exactly.

use std::ops::Range;

use clap::Parser;
use jsonc_parser::ast::{Array, Object, ObjectProp, StringLit, Value};
use jsonc_parser::common::Ranged;

use super::address::{ADDRESSES, TRANSPORTS};
use super::command_list::CommandList;
use super::document::Edit;
use super::our_command::{OurCommand, WRAP, is_milepost, wrap_at};
use crate::commands::args::{Cli, Command};

/// The result for an entry: its edits, `None` if no change is needed, or the reason why it cannot be changed.
pub(super) type EntryChange = Result<Option<Vec<Edit>>, Alone>;

/// The reason why an entry stays unchanged, and the place in the entry that causes it.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) why: String,
    pub(super) at: usize,
}

impl Alone {
    pub(super) fn new(at: usize, why: impl Into<String>) -> Self {
        Self { why: why.into(), at }
    }
}

/// How the user chose a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// By its name (`--server NAME`).
    ByName,
    /// With all servers of the file.
    WithAll,
}

/// Puts the command `ours` in front of the server.
pub(super) fn wrap(
    text: &str,
    object: &Object<'_>,
    ours: &OurCommand,
    choice: Choice,
) -> EntryChange {
    let server = ServerObject::new(text, object);
    if let Some(list) = server.command_list()? {
        return list.wrap(&server, ours);
    }
    match server.is_wrapped()? {
        Some(_) => Ok(None),
        None => server.wrap(ours, choice).map(Some),
    }
}

/// Removes Milepost from the front of the server.
pub(super) fn unwrap(text: &str, object: &Object<'_>) -> EntryChange {
    let server = ServerObject::new(text, object);
    if let Ok(Some(list)) = server.command_list() {
        return list.unwrap();
    }
    match server.is_wrapped() {
        Ok(Some(at)) => server.unwrap(at).map(Some),
        // `adopt` did not change this server, so `--undo` does not mention it.
        Ok(None) | Err(_) => Ok(None),
    }
}

/// How Milepost came in front of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrappedBy {
    /// In the form that `adopt` writes.
    Form,
    /// In another form: with options, or by a program that runs packages.
    Hand,
}

/// Whether Milepost is in front of the server, and in which form.
pub(super) fn wrapped_by(text: &str, object: &Object<'_>) -> Option<WrappedBy> {
    let server = ServerObject::new(text, object);
    let words: Vec<String> = match server.command_list() {
        Ok(Some(list)) => {
            if list.wrap_at()? > 1 {
                return Some(WrappedBy::Hand);
            }
            list.words().into_iter().skip(1).collect()
        }
        _ => {
            let at = server.is_wrapped().ok()??;
            if at > 0 {
                return Some(WrappedBy::Hand);
            }
            server.args().ok()??.elements.iter().filter_map(word).collect()
        }
    };
    let mut options = words.iter().skip(1);
    while let Some(option) = options.next() {
        match option.as_str() {
            "--transport" | "--header-env" | "--ca-file" => {
                let _ = options.next();
            }
            "--" => break,
            other if other.starts_with('-') => return Some(WrappedBy::Hand),
            _ => break,
        }
    }
    Some(WrappedBy::Form)
}

pub(super) struct ServerObject<'a> {
    text: &'a str,
    object: &'a Object<'a>,
    /// The key of the command: `command`, or `path` in the older form of Zed, whose `command` is an object.
    command: &'static str,
}

impl<'a> ServerObject<'a> {
    fn new(text: &'a str, object: &'a Object<'a>) -> Self {
        let member = object.properties.iter().find(|member| member.name.as_str() == "command");
        let inner = member.and_then(|member| member.value.as_object());
        match inner.filter(|inner| inner.get("path").is_some()) {
            Some(inner) => Self { text, object: inner, command: "path" },
            None => Self { text, object, command: "command" },
        }
    }

    /// Returns the command if it is a list, as in opencode. Fails for a server at a URL in such a file, which `adopt`
    /// cannot edit.
    fn command_list(&self) -> Result<Option<CommandList<'a>>, Alone> {
        let list = self.member("command")?.and_then(|member| member.value.as_array());
        if let Some(list) = list {
            return Ok(Some(CommandList::new(list)));
        }
        match self.string("type")? {
            Some((_, kind)) if ["local", "remote"].contains(&&*kind.value) => {
                let url = self.string("url")?.map_or("URL", |(_, url)| &*url.value);
                let what = format!(
                    "only a server with a list as \"command\" can be edited here; write \"type\": \"local\", \
                     \"command\": [\"milepost\", \"wrap\", {}] in the place of type, url and headers",
                    quote(url)
                );
                Err(Alone::new(kind.start(), what))
            }
            _ => Ok(None),
        }
    }

    /// Returns the index of a member. A repeated member is an error, which only the user can correct.
    fn place(&self, key: &str) -> Result<Option<usize>, Alone> {
        let named = |(_, member): &(usize, &ObjectProp<'_>)| member.name.as_str() == key;
        let mut found = self.object.properties.iter().enumerate().filter(named);
        match (found.next(), found.next()) {
            (_, Some((_, twice))) => {
                Err(Alone::new(twice.start(), format!("\"{key}\" stands there twice")))
            }
            (first, None) => Ok(first.map(|(at, _)| at)),
        }
    }

    pub(super) fn member(&self, key: &str) -> Result<Option<&'a ObjectProp<'a>>, Alone> {
        Ok(self.place(key)?.and_then(|at| self.object.properties.get(at)))
    }

    pub(super) fn string(
        &self,
        key: &str,
    ) -> Result<Option<(&'a ObjectProp<'a>, &'a StringLit<'a>)>, Alone> {
        let Some(member) = self.member(key)? else { return Ok(None) };
        let expected = || Alone::new(member.value.start(), format!("\"{key}\" is not a string"));
        Ok(Some((member, member.value.as_string_lit().ok_or_else(expected)?)))
    }

    /// Returns the URL of the server. Gemini CLI has it as `httpUrl`, Windsurf as `serverUrl`.
    fn address(&self) -> Result<Option<(&'a ObjectProp<'a>, &'a StringLit<'a>)>, Alone> {
        for key in ADDRESSES {
            if let Some(found) = self.string(key)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn args(&self) -> Result<Option<&'a Array<'a>>, Alone> {
        let Some(member) = self.member("args")? else { return Ok(None) };
        let expected = || Alone::new(member.value.start(), "\"args\" is not a list");
        Ok(Some(member.value.as_array().ok_or_else(expected)?))
    }

    pub(super) fn raw(&self, part: &impl Ranged) -> &'a str {
        self.slice(range(part))
    }

    pub(super) fn slice(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    /// Returns the position of `wrap` in the arguments, if Milepost is in front of the server already.
    fn is_wrapped(&self) -> Result<Option<usize>, Alone> {
        let (Some((_, command)), Some(args)) = (self.string(self.command)?, self.args()?) else {
            return Ok(None);
        };
        let words: Vec<_> = args.elements.iter().map(word).collect();
        Ok(wrap_at(&command.value, &words))
    }

    fn wrap(&self, ours: &OurCommand, choice: Choice) -> Result<Vec<Edit>, Alone> {
        let kind = self.string("type")?;
        let kind_is = |known: &[&str]| kind.is_none_or(|(_, kind)| known.contains(&&*kind.value));
        let unknown = || {
            let (at, kind) = kind.map_or((0, ""), |(_, kind)| (kind.start(), &kind.value));
            Alone::new(at, format!("a server of the type {kind:?} cannot be reached"))
        };
        match (self.string(self.command)?, self.address()?) {
            (Some((_, command)), Some(_)) => {
                Err(Alone::new(command.start(), "the server has both a \"command\" and a \"url\""))
            }
            (Some((_, command)), None) if command.value.trim().is_empty() => {
                Err(Alone::new(command.start(), "the command is empty"))
            }
            (Some((_, command)), None) if command.value.starts_with('-') => {
                Err(Alone::new(command.start(), "the command begins with `-`"))
            }
            (Some((_, command)), None) if is_milepost(&command.value) => {
                Err(Alone::new(command.start(), "the server is Milepost itself"))
            }
            (Some(command), None) if kind_is(&["stdio"]) => self.wrap_command(command, ours),
            (None, Some(url)) if kind_is(&TRANSPORTS) => self.wrap_address(url, ours, choice),
            (None, None) => Err(Alone::new(
                self.object.start(),
                "the server has neither a \"command\" nor a \"url\"",
            )),
            _ => Err(unknown()),
        }
    }

    fn wrap_command(
        &self,
        (member, command): (&ObjectProp<'_>, &StringLit<'_>),
        ours: &OurCommand,
    ) -> Result<Vec<Edit>, Alone> {
        let mut edits = vec![Edit::replace(range(command), quote(&ours.program))];
        let begin: Vec<String> = ours.args().map(quote).collect();
        let raw = self.raw(command);
        let words = |separator: &str| [&begin.join(separator), "\"--\"", raw].join(separator);
        edits.push(match self.args()? {
            Some(args) => match args.elements.first() {
                Some(first) => {
                    let separator = self.separator(args, member);
                    Edit::insert(first.start(), words(&separator) + &separator)
                }
                None => Edit::insert(args.start() + 1, words(self.comma(member))),
            },
            // No `--` stands before the server's command here. `unwrap` takes this as the sign that the entry had no list
            // of arguments, and removes the whole list, so that `--undo` restores the entry as it was.
            None => {
                let words: Vec<&str> = begin.iter().map(String::as_str).chain([raw]).collect();
                Edit::insert(command.end(), self.args_member(member, &words))
            }
        });
        Ok(edits)
    }

    /// Removes the words of Milepost before the server's own command. `at` is the position of `wrap`.
    fn unwrap(&self, at: usize) -> Result<Vec<Edit>, Alone> {
        let (Some((member, command)), Some(args)) = (self.string(self.command)?, self.args()?)
        else {
            return Ok(Vec::new());
        };
        let words: Vec<String> = args.elements.iter().filter_map(word).collect();
        if words.len() < args.elements.len() {
            return Err(Alone::new(args.start(), "not every argument is a string"));
        }
        let ours = words.get(at + 1..).unwrap_or_default();
        let arguments = ["milepost", WRAP].into_iter().chain(ours.iter().map(String::as_str));
        let Ok(Cli { command: Command::Wrap(parsed) }) = Cli::try_parse_from(arguments) else {
            return Err(Alone::new(args.start(), "`milepost wrap` does not know these arguments"));
        };
        if parsed.command.is_empty() {
            return Err(Alone::new(args.start(), "the server is in a route file"));
        }
        let first = words.len().saturating_sub(parsed.command.len());
        // The words after Milepost's own options are the server's command, unchanged.
        let is_command = words.iter().skip(first).zip(&parsed.command).all(|(a, b)| *b == **a);
        let Some(target) = args.elements.get(first).filter(|_| is_command) else {
            return Err(Alone::new(args.start(), "the arguments do not show the server's command"));
        };
        let options = words.get(at + 1..first).unwrap_or_default();
        if parsed.address().ok().flatten().is_some() {
            return self.unwrap_address(member, command, target, options);
        }
        let mut edits = vec![Edit::replace(range(command), self.raw(target))];
        let start = args.elements.first().map_or_else(|| target.start(), Ranged::start);
        edits.extend(match args.elements.get(first + 1) {
            Some(next) => Some(Edit::remove(start..next.start())),
            None if first == at + 1 && self.follows("args", self.command)? => {
                self.without("args")?
            }
            None => Some(Edit::remove(start..self.comma_end(target.end()))),
        });
        Ok(edits)
    }

    /// Returns the separator between new elements and the first element of a list.
    fn separator(&self, args: &Array<'_>, member: &ObjectProp<'_>) -> String {
        self.list_separator(args).unwrap_or_else(|| self.comma(member).to_owned())
    }

    /// Returns the separator between the elements of a list, if the list has several.
    pub(super) fn list_separator(&self, args: &Array<'_>) -> Option<String> {
        let first = args.elements.first()?;
        if let Some(line) = own_line(self.slice(args.start() + 1..first.start())) {
            return Some(format!(",{line}"));
        }
        let used = self.slice(first.end()..args.elements.get(1)?.start());
        Some(used.to_owned()).filter(|used| is_plain_comma(used))
    }

    /// Returns a comma, spaced as in the object that has this member.
    fn comma(&self, member: &ObjectProp<'_>) -> &'static str {
        if self.colon(member) == ":" { "," } else { ", " }
    }

    /// Returns the text between the key and the value of a member.
    fn colon(&self, member: &ObjectProp<'_>) -> &'a str {
        let colon = self.slice(member.name.end()..member.value.start());
        let is_plain = colon.chars().all(|c| c == ':' || c.is_ascii_whitespace());
        if is_plain { colon } else { ": " }
    }

    /// Returns the text of a new member `args` to insert after `member`.
    pub(super) fn args_member(&self, member: &ObjectProp<'_>, words: &[&str]) -> String {
        let before = self.text.get(self.object.start()..member.start()).unwrap_or_default();
        let separator = match own_line(before) {
            Some(line) => format!(",{line}"),
            None => self.comma(member).to_owned(),
        };
        let words = words.join(self.comma(member));
        format!("{separator}\"args\"{}[{words}]", self.colon(member))
    }

    /// Whether the member `key` follows the member `before` with only a comma between them.
    fn follows(&self, key: &str, before: &str) -> Result<bool, Alone> {
        let (Some(before), Some(member)) = (self.member(before)?, self.member(key)?) else {
            return Ok(false);
        };
        let is_behind = before.end() <= member.start();
        Ok(is_behind && is_plain_comma(self.slice(before.value.end()..member.start())))
    }

    /// Returns the edit that removes a member and one comma.
    pub(super) fn without(&self, key: &str) -> Result<Option<Edit>, Alone> {
        let members = &self.object.properties;
        let Some(at) = self.place(key)? else { return Ok(None) };
        let before = at.checked_sub(1).and_then(|at| members.get(at));
        let range = match (before, members.get(at), members.get(at + 1)) {
            (Some(before), Some(member), _) => before.value.end()..member.value.end(),
            (None, Some(member), Some(next)) => member.start()..next.start(),
            (None, Some(member), None) => member.start()..self.comma_end(member.value.end()),
            (_, None, _) => return Ok(None),
        };
        Ok(Some(Edit::remove(range)))
    }

    /// Returns the position after the comma that follows at `at`, or `at` without a comma.
    fn comma_end(&self, at: usize) -> usize {
        let rest = self.slice(at..self.text.len());
        let space = rest.len() - rest.trim_start().len();
        if rest.trim_start().starts_with(',') { at + space + 1 } else { at }
    }
}

/// Returns the end of the text from its last line break, if only white space follows that line break.
fn own_line(before: &str) -> Option<&str> {
    let at = before.trim_end_matches([' ', '\t']).strip_suffix('\n')?.len();
    let at = at - usize::from(before[..at].ends_with('\r'));
    Some(&before[at..])
}

fn is_plain_comma(gap: &str) -> bool {
    gap.trim() == ","
}

/// Returns a value as a word of a command line, if it is a string.
pub(super) fn word(value: &Value<'_>) -> Option<String> {
    match value {
        Value::StringLit(text) => Some(text.value.to_string()),
        Value::NumberLit(number) => Some(number.value.to_owned()),
        Value::BooleanLit(truth) => Some(truth.value.to_string()),
        _ => None,
    }
}

pub(super) fn range(part: &impl Ranged) -> Range<usize> {
    part.start()..part.end()
}

pub(super) fn quote(word: &str) -> String {
    serde_json::Value::from(word).to_string()
}
