//! The text of a client's file: finds the servers in it, and edits it in place.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use jsonc_parser::ast::{Comment, Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseError;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};

use crate::protocol::order;

/// The keys under which clients keep their servers. In some settings of VS Code `mcp.servers` is a single key.
const PLACES: [&[&str]; 5] =
    [&["mcpServers"], &["servers"], &["mcp", "servers"], &["mcp.servers"], &["context_servers"]];

/// The JSON dialect that clients read: with comments and trailing commas.
const FORM: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Reads a file; `None` if it is empty.
pub(super) fn parse(text: &str) -> Result<Option<Value<'_>>, ParseError> {
    parse_to_ast(text, &CollectOptions::default(), &FORM).map(|parsed| parsed.value)
}

/// Returns the comments of a file, each at least once.
pub(super) fn comments(text: &str) -> Vec<Rc<Vec<Comment<'_>>>> {
    let comments = CommentCollectionStrategy::Separate;
    let options = CollectOptions { comments, ..CollectOptions::default() };
    let parsed = parse_to_ast(text, &options, &FORM).ok();
    parsed.and_then(|parsed| parsed.comments).into_iter().flat_map(HashMap::into_values).collect()
}

/// A server in a client's file.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerEntry<'a> {
    pub(super) name: &'a str,
    /// The project directory that the entry is for, if the file has entries for several projects.
    pub(super) project: Option<&'a str>,
    pub(super) object: &'a Object<'a>,
    /// The start of the server's name in the text.
    pub(super) at: usize,
}

impl ServerEntry<'_> {
    /// Returns the range of the entry in the text, with its name.
    pub(super) fn range(&self) -> Range<usize> {
        self.at..self.object.range.end
    }

    /// Returns the name of the server, with the project directory that the entry is for.
    pub(super) fn title(&self) -> String {
        match self.project {
            None => self.name.to_owned(),
            Some(project) => format!("{} ({project})", self.name),
        }
    }
}

/// Returns the servers of a file in the order of the file; `None` if the file has no key for servers.
pub(super) fn entries<'a>(file: &'a Value<'a>) -> Option<Vec<ServerEntry<'a>>> {
    let file = file.as_object()?;
    let mut places: Vec<(Option<&str>, &Object<'_>)> = Vec::new();
    for place in PLACES {
        let servers = place.iter().try_fold(file, |object, key| object_at(object, key));
        places.extend(servers.map(|servers| (None, servers)));
    }
    // opencode: `mcp` contains the servers directly.
    if let Some(servers) = object_at(file, "mcp").filter(|inner| has_server(inner)) {
        places.push((None, servers));
    }
    // Claude Code: the servers of each project.
    for project in object_at(file, "projects").iter().flat_map(|projects| &projects.properties) {
        let servers =
            project.value.as_object().and_then(|project| object_at(project, "mcpServers"));
        places.extend(servers.map(|servers| (Some(project.name.as_str()), servers)));
    }
    if places.is_empty() {
        if !has_server(file) {
            return None;
        }
        places.push((None, file));
    }
    let mut entries = Vec::new();
    for (project, servers) in places {
        for server in &servers.properties {
            let Some(object) = server.value.as_object() else { continue };
            let at = server.name.start();
            entries.push(ServerEntry { name: server.name.as_str(), project, object, at });
        }
    }
    order::sort_by_key(&mut entries, |entry| entry.at);
    Some(entries)
}

/// Whether a member of the object is a server.
fn has_server(object: &Object<'_>) -> bool {
    let is_server = |server: &ObjectProp<'_>| {
        let server = server.value.as_object();
        let keys = ["command", "url", "httpUrl", "serverUrl"];
        server.is_some_and(|server| keys.iter().any(|key| server.get(key).is_some()))
    };
    object.properties.iter().any(is_server)
}

/// Returns the object at a key. If the key is repeated, the last one counts.
fn object_at<'a>(object: &'a Object<'a>, key: &str) -> Option<&'a Object<'a>> {
    let member = object.properties.iter().rfind(|member| member.name.as_str() == key)?;
    member.value.as_object()
}

/// A part of the text and its replacement.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

impl Edit {
    pub(super) fn replace(range: Range<usize>, text: impl Into<String>) -> Self {
        Self { range, text: text.into() }
    }

    pub(super) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self::replace(at..at, text)
    }

    pub(super) fn remove(range: Range<usize>) -> Self {
        Self::replace(range, "")
    }
}

/// Returns the text with the edits, which must not overlap.
pub(super) fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    order::sort_by_key(&mut edits, |edit| (edit.range.start, edit.range.end));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for edit in &edits {
        out += text.get(at..edit.range.start).unwrap_or_default();
        out += &edit.text;
        at = edit.range.end;
    }
    out + text.get(at..).unwrap_or_default()
}

/// Returns the line and the column of a place, both from 1; the column in characters.
pub(super) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
