//! Finds progress values in text: patterns such as `45%` and `234/520` within a message text.
//!
//! Text is ambiguous. A number that may be something else (a date, a path, the load of a machine) is not read as a
//! value, because a missed value costs little, but a wrong value misleads.

mod number;
mod presets;
mod words;

use std::fmt;
use std::sync::{Arc, LazyLock};

use number::{figure, hundredths, spelled};
use regex::{Captures, Regex, RegexBuilder};

use crate::progress::value::ProgressValue;

/// Limit of the patterns (`extract`) of one route or tool. Every pattern may be tried on every line.
pub const PATTERNS_MAX: usize = 32;

/// Limit of the bytes of one pattern (`extract`).
pub const PATTERN_MAX: usize = 1 << 10;

/// Limit of the bytes of a line that are examined. Progress bars and counters fit into the width of a screen.
const LOOKED_AT: usize = 1 << 10;

/// Limit of the bytes of memory for one compiled pattern (`extract` or `mask`), and for its cache at run time.
const COMPILED_MAX: usize = 1 << 20;

/// Limit of the positions in a line at which a template is tried.
const TRIES_MAX: usize = 16;

/// The name of the built-in patterns in `extract`.
pub const PRESETS: &str = "presets";

/// The names of the groups that a pattern may have.
const NAMES: [&str; 3] = ["progress", "total", "percent"];

/// The expression for a number in a template. Thousands may be separated.
const NUMBER: &str =
    r"[0-9]{1,3}(?:[,_'\u{a0}\u{2009}\u{202f}][0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?";

/// The patterns that find values in text.
#[derive(Clone)]
pub struct Extract {
    patterns: Arc<[Pattern]>,
}

/// One pattern.
struct Pattern {
    written: String,
    kind: PatternKind,
}

enum PatternKind {
    Presets,
    /// A regular expression with named groups.
    Expression(Regex),
    Template(WordTemplate),
}

/// A pattern that marks the places of the numbers: `{progress} of {total}`.
struct WordTemplate {
    expression: Regex,
    begins_with_number: bool,
    ends_with_number: bool,
}

impl Default for Extract {
    fn default() -> Self {
        Self::presets()
    }
}

impl PartialEq for Extract {
    fn eq(&self, other: &Self) -> bool {
        self.patterns().eq(other.patterns())
    }
}

impl fmt::Debug for Extract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.patterns()).finish()
    }
}

impl Extract {
    /// Returns the built-in patterns.
    pub fn presets() -> Self {
        static PATTERNS: LazyLock<Arc<[Pattern]>> = LazyLock::new(|| {
            Arc::new([Pattern { written: PRESETS.to_owned(), kind: PatternKind::Presets }])
        });
        Self { patterns: Arc::clone(&PATTERNS) }
    }

    /// Returns no patterns, so that no value is ever found.
    pub fn none() -> Self {
        Self { patterns: Arc::new([]) }
    }

    /// Reads patterns: templates such as `{progress}/{total}`, regular expressions with groups of the names `progress`,
    /// `total` and `percent`, or [`PRESETS`]. The error describes the correct form.
    pub fn read<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut read: Vec<Pattern> = Vec::new();
        for written in patterns {
            if read.iter().any(|known| known.written == written) {
                return Err(format!("{written:?} is there twice"));
            }
            if read.len() == PATTERNS_MAX {
                return Err(format!("at most {PATTERNS_MAX} patterns are expected"));
            }
            read.push(Pattern { written: written.to_owned(), kind: PatternKind::read(written)? });
        }
        Ok(Self { patterns: read.into() })
    }

    /// Returns the patterns as they were written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|pattern| &*pattern.written)
    }

    /// Returns the value in a line, from the first pattern that finds a value. The value is at least 0 and at most its
    /// total.
    pub fn figure(&self, words: &str) -> Option<ProgressValue> {
        // The cheapest test comes first: a text without digits has no value.
        if self.patterns.is_empty() || !words.bytes().any(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let words = head(words);
        self.patterns.iter().find_map(|pattern| match &pattern.kind {
            PatternKind::Presets => presets::figure_of(words),
            PatternKind::Expression(expression) => {
                expression.captures_iter(words).take(TRIES_MAX).find_map(|found| captured(&found))
            }
            PatternKind::Template(template) => template.find(words),
        })
    }
}

/// Returns the part of a line that is searched, without a word at its end that may be cut off.
fn head(words: &str) -> &str {
    if words.len() <= LOOKED_AT {
        return words;
    }
    let end = (0..=LOOKED_AT).rev().find(|&at| words.is_char_boundary(at)).unwrap_or(0);
    let (head, _) = words.split_at(end);
    // The last word may be a number that was cut off.
    head.rfind(char::is_whitespace).map_or("", |at| head.split_at(at).0)
}

impl PatternKind {
    fn read(written: &str) -> Result<Self, String> {
        if written == PRESETS {
            return Ok(Self::Presets);
        }
        if written.len() > PATTERN_MAX {
            return Err(format!("a pattern of at most {PATTERN_MAX} bytes is expected"));
        }
        if NAMES.iter().any(|name| written.contains(&format!("{{{name}}}"))) {
            return Self::template(written);
        }
        let Ok(expression) = compile(written) else {
            return Err(match compile_error(written) {
                // If the text has a group, it was meant as a regular expression. Other text is probably a template with
                // an error, for which messages of the regex compiler would be misleading.
                Some(why) if written.contains("(?") => {
                    format!("{written:?} is not a regular expression: {why}")
                }
                _ => no_pattern(written),
            });
        };
        let names: Vec<&str> = expression.capture_names().flatten().collect();
        if !names.iter().any(|name| NAMES.contains(name)) {
            return Err(no_pattern(written));
        }
        agree(written, |name| names.contains(&name))?;
        Ok(Self::Expression(expression))
    }

    fn template(written: &str) -> Result<Self, String> {
        let mut expression = String::new();
        let mut found: Vec<&str> = Vec::new();
        let mut rest = written.trim();
        let begins_with_number = rest.starts_with('{');
        let ends_with_number = rest.ends_with('}');
        while !rest.is_empty() {
            let named = NAMES.iter().find_map(|name| {
                let after = rest.strip_prefix('{')?.strip_prefix(name)?.strip_prefix('}')?;
                Some((*name, after))
            });
            if let Some((name, after)) = named {
                if found.contains(&name) {
                    return Err(format!("{written:?} has {{{name}}} twice"));
                }
                found.push(name);
                expression.push_str(&format!("(?<{name}>{NUMBER})"));
                rest = after;
                continue;
            }
            let blanks = rest.len() - rest.trim_start().len();
            if blanks > 0 {
                // A line may have more blanks than the template, because tools align their columns.
                expression.push_str(r"\s+");
                rest = rest.split_at(blanks).1;
                continue;
            }
            let next = rest.chars().next().map_or(rest.len(), char::len_utf8);
            let (literal, after) = rest.split_at(next);
            expression.push_str(&regex::escape(literal));
            rest = after;
        }
        agree(written, |name| found.contains(&name))?;
        let expression = compile(&expression)
            .map_err(|_| format!("{written:?} is too large; a shorter pattern is expected"))?;
        Ok(Self::Template(WordTemplate { expression, begins_with_number, ends_with_number }))
    }
}

/// Checks that the groups of a pattern make up a value.
fn agree(written: &str, has: impl Fn(&str) -> bool) -> Result<(), String> {
    match (has("progress"), has("total"), has("percent")) {
        (true, _, true) | (false, true, true) => Err(format!(
            "{written:?} has `percent` beside other figures; either `percent` or `progress` with or \
             without `total` is expected"
        )),
        (false, true, false) => Err(format!("{written:?} has `total` without `progress`")),
        _ => Ok(()),
    }
}

/// Compiles a regular expression of limited size.
pub(crate) fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(COMPILED_MAX).dfa_size_limit(COMPILED_MAX).build()
}

/// Returns the reason as a short text: the last line of the compiler's message.
fn compile_error(pattern: &str) -> Option<String> {
    let said = compile(pattern).err()?.to_string();
    let last = said.lines().last().unwrap_or_default();
    Some(last.trim_start_matches("error: ").to_owned())
}

fn no_pattern(written: &str) -> String {
    if strsim::jaro_winkler(written, PRESETS) > 0.8 || written == "defaults" {
        return format!("{written:?} is not a pattern; did you mean {PRESETS:?}?");
    }
    let part = written.split(['{', '<']).nth(1).and_then(|rest| rest.split(['}', '>']).next());
    let near =
        part.and_then(|part| NAMES.into_iter().find(|name| strsim::jaro_winkler(part, name) > 0.8));
    if let (Some(part), Some(near)) = (part, near) {
        let meant = written.replacen(part, near, 1);
        return format!("{written:?} is not a pattern; did you mean {meant:?}?");
    }
    format!(
        "{written:?} finds no figure; {{progress}}, {{total}} or {{percent}} is expected in it, such as \
         \"{{progress}}/{{total}}\", or a group such as (?<percent>[0-9]+)"
    )
}

impl WordTemplate {
    /// Returns the first match of the template in which no number is part of a longer word or number.
    fn find(&self, words: &str) -> Option<ProgressValue> {
        let mut from = 0;
        for _ in 0..TRIES_MAX {
            let found = self.expression.captures_at(words, from)?;
            let whole = found.get(0)?;
            let before = words.split_at(whole.start()).0.chars().next_back();
            let mut after = words.split_at(whole.end()).1.chars();
            let (next, second) = (after.next(), after.next());
            let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/');
            let joined_before =
                self.begins_with_number && before.is_some_and(|c| is_word(c) || c == '.');
            let joined_after = self.ends_with_number
                && next.is_some_and(|c| {
                    is_word(c)
                        || (matches!(c, '.' | ',') && second.is_some_and(|c| c.is_ascii_digit()))
                });
            if !joined_before
                && !joined_after
                && let Some(figure) = captured(&found)
            {
                return Some(figure);
            }
            from = whole.end().max(from + 1);
            if !words.is_char_boundary(from) {
                return None;
            }
        }
        None
    }
}

/// Returns the value from the groups of a match.
fn captured(found: &Captures<'_>) -> Option<ProgressValue> {
    let number = |name| found.name(name).and_then(|text| spelled(text.as_str()));
    if found.name("percent").is_some() {
        return hundredths(number("percent")?);
    }
    let total = match found.name("total") {
        Some(_) => Some(number("total")?),
        None => None,
    };
    figure(number("progress")?, total)
}
