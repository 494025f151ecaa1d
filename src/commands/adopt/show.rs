//! The preview of a change: the changed lines of a client's file, without secrets.

use std::fmt::Write;

use console::Style;
use jsonc_parser::ast::{Comment, Object, Value};
use jsonc_parser::common::Ranged;
use litemap::LiteMap;
use similar::{ChangeTag, TextDiff};

use super::address::HEADER_VARIABLE;
use super::document::{self, Edit, ServerEntry};
use crate::protocol::secret::{is_secret, is_secret_value};
use crate::protocol::terminal;

/// Number of lines shown around a change, if they belong to the same entry.
const CONTEXT: usize = 3;

/// Maximum number of characters of one line that `adopt` shows. A file may have all its text in one line.
const LINE_MAX: usize = 1000;

/// The text in place of a secret.
const HIDDEN: &str = "***";

/// Returns the changes of one entry as a diff, with colours on a terminal.
pub(super) fn diff(old: (&str, &ServerEntry<'_>), new: (&str, &ServerEntry<'_>)) -> String {
    let (before, after) = (shown(old.0, old.1), shown(new.0, new.1));
    let first_line =
        |(text, entry): (&str, &ServerEntry<'_>)| document::line_and_column(text, entry.at).0;
    let (old_line, new_line) = (first_line(old), first_line(new));
    let diff = TextDiff::from_lines(&before, &after);
    let mut out = String::new();
    for group in diff.grouped_ops(CONTEXT) {
        let Some(first) = group.first() else { continue };
        let old_line = old_line + first.old_range().start;
        let new_line = new_line + first.new_range().start;
        let head = format!("@@ -{old_line} +{new_line} @@ {}", plain(&old.1.title()));
        let _ = writeln!(out, "{}", Style::new().cyan().apply_to(head));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, style) = match change.tag() {
                ChangeTag::Delete => ('-', Style::new().red()),
                ChangeTag::Insert => ('+', Style::new().green()),
                ChangeTag::Equal => (' ', Style::new()),
            };
            let line = format!("{sign}{}", plain(change.value().trim_end_matches(['\r', '\n'])));
            let _ = writeln!(out, "{}", style.apply_to(line));
        }
    }
    out
}

/// Returns the text without control characters, shortened if it is long.
pub(super) fn plain(line: &str) -> String {
    let mut text = terminal::plain(line);
    if let Some((end, _)) = text.char_indices().nth(LINE_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Returns the words of a command line, with `***` for those that look like a secret.
pub(super) fn hidden_words(words: &[String]) -> Vec<String> {
    let mut flag = "";
    let mut shown = Vec::new();
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((flag, word));
        let is_hidden = is_secret(name.trim_start_matches('-'), value);
        shown.push(match word.split_once('=') {
            Some((name, _)) if is_hidden => format!("{name}={HIDDEN}"),
            None if is_hidden => HIDDEN.to_owned(),
            _ => word.clone(),
        });
        flag = if word.starts_with('-') { word } else { "" };
    }
    shown
}

/// Returns an entry as it is in its file, without secrets; with the beginning of its line if that is only white space.
fn shown(text: &str, entry: &ServerEntry<'_>) -> String {
    let range = entry.range();
    let before = text.get(..range.start).unwrap_or_default();
    let indent = before.len() - before.trim_end_matches([' ', '\t']).len();
    let start =
        range.start - if before[..before.len() - indent].ends_with('\n') { indent } else { 0 };
    let mut masks = comments(text);
    masks.retain(|mask| range.start <= mask.range.start && mask.range.end <= range.end);
    mask_object(entry.object, Hidden::Secrets, &mut masks);
    for mask in &mut masks {
        mask.range = mask.range.start - start..mask.range.end - start;
    }
    document::apply(text.get(start..range.end).unwrap_or_default(), masks)
}

/// Returns edits that remove the text of comments, which may be unused settings.
fn comments(text: &str) -> Vec<Edit> {
    let mut found: LiteMap<_, _> = LiteMap::new();
    for comment in document::comments(text).iter().flat_map(|comments| comments.iter()) {
        let hidden = match comment {
            Comment::Line(_) => "// …".to_owned(),
            Comment::Block(block) => {
                format!("/* …{} */", "\n".repeat(block.text.matches('\n').count()))
            }
        };
        found.insert(comment.start(), Edit::replace(comment.start()..comment.end(), hidden));
    }
    found.into_iter().map(|(_, value)| value).collect()
}

/// Which values of an entry are masked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hidden {
    /// Values that look like a secret.
    Secrets,
    /// All values.
    All,
}

fn mask_object(object: &Object<'_>, hidden: Hidden, masks: &mut Vec<Edit>) {
    for member in &object.properties {
        let name = member.name.as_str();
        let hidden = if ["env", "headers"].contains(&name) { Hidden::All } else { hidden };
        mask(name, &member.value, hidden, masks);
    }
}

/// Masks possible secrets in the value named `name`.
fn mask(name: &str, value: &Value<'_>, hidden: Hidden, masks: &mut Vec<Edit>) {
    match value {
        Value::Object(object) => mask_object(object, hidden, masks),
        Value::Array(array) => {
            let mut flag = "";
            for element in &array.elements {
                mask_word(flag, element, hidden, masks);
                let word = element.as_string_lit().map_or("", |text| &text.value);
                flag = if word.starts_with('-') { word.trim_start_matches('-') } else { "" };
            }
        }
        Value::StringLit(text) if hidden == Hidden::All || is_secret(name, &text.value) => {
            // A reference such as `${TOKEN}` is not a secret: the client fills in the value.
            let is_reference = text.value.starts_with("${") && text.value.ends_with('}');
            if !is_reference {
                masks.push(hide(value, HIDDEN));
            }
        }
        Value::NumberLit(_) | Value::BooleanLit(_) if hidden == Hidden::All => {
            masks.push(hide(value, HIDDEN))
        }
        _ => {}
    }
}

/// Masks an argument that follows `flag`.
fn mask_word(flag: &str, element: &Value<'_>, hidden: Hidden, masks: &mut Vec<Edit>) {
    let Value::StringLit(text) = element else { return mask(flag, element, hidden, masks) };
    if flag == "header-env" && text.value.contains(HEADER_VARIABLE) {
        return;
    }
    // In `--token=…`, `KEY=…`, `Authorization: …` the name is before the separator.
    for separator in ["=", ": "] {
        if let Some((name, value)) = text.value.split_once(separator)
            && is_secret(name.trim_start_matches('-'), value)
            && hidden == Hidden::Secrets
        {
            let name = if is_secret_value(name) { HIDDEN } else { name };
            return masks.push(hide(element, &format!("{name}{separator}{HIDDEN}")));
        }
    }
    mask(flag, element, hidden, masks);
}

fn hide(value: &Value<'_>, shown: &str) -> Edit {
    Edit::replace(value.start()..value.end(), serde_json::Value::from(shown).to_string())
}
