//! A server whose command is one list of program and arguments, as in opencode: `"command": ["npx", "-y", "x"]`.

use jsonc_parser::ast::Array;
use jsonc_parser::common::Ranged;

use super::document::Edit;
use super::entry::{Alone, EntryChange, ServerObject, quote, word};
use super::our_command::{OurCommand, is_milepost, wrap_at};

/// A command with its arguments.
pub(super) struct CommandList<'a> {
    list: &'a Array<'a>,
}

impl<'a> CommandList<'a> {
    pub(super) fn new(list: &'a Array<'a>) -> Self {
        Self { list }
    }

    /// Returns the elements of the list that are strings.
    pub(super) fn words(&self) -> Vec<String> {
        self.list.elements.iter().filter_map(word).collect()
    }

    /// Returns the position of `wrap` in the list, if Milepost is in front of the server.
    pub(super) fn wrap_at(&self) -> Option<usize> {
        let (first, rest) = self.list.elements.split_first()?;
        let rest: Vec<_> = rest.iter().map(word).collect();
        Some(wrap_at(&word(first)?, &rest)? + 1)
    }

    pub(super) fn wrap(&self, server: &ServerObject<'_>, ours: &OurCommand) -> EntryChange {
        let Some(first) = self.list.elements.first() else {
            return Err(Alone::new(self.list.start(), "the command is empty"));
        };
        let words = self.words();
        if words.len() < self.list.elements.len() {
            return Err(Alone::new(self.list.start(), "not every word of the command is a string"));
        }
        if self.wrap_at().is_some() {
            return Ok(None);
        }
        if words.first().is_some_and(|word| is_milepost(word)) {
            return Err(Alone::new(first.start(), "the server is Milepost itself"));
        }
        let separator = server.list_separator(self.list).unwrap_or_else(|| ", ".to_owned());
        let new = ours.words().chain(["--"]).map(|word| quote(word) + &separator);
        Ok(Some(vec![Edit::insert(first.start(), new.collect::<String>())]))
    }

    pub(super) fn unwrap(&self) -> EntryChange {
        let Some(wrap) = self.wrap_at() else { return Ok(None) };
        let words = self.words();
        let target = words.iter().skip(wrap + 1).position(|word| word == "--");
        let target = target.map(|at| wrap + 1 + at + 1);
        let target = target.and_then(|at| self.list.elements.get(at));
        let (Some(first), Some(target)) = (self.list.elements.first(), target) else {
            let what = "the command does not show where the server's begins";
            return Err(Alone::new(self.list.start(), what));
        };
        Ok(Some(vec![Edit::remove(first.start()..target.start())]))
    }
}
