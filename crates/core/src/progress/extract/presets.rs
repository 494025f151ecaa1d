//! Finds the values that tools usually print: `45%`, `234/520`, `3 of 7`. The rest of the line has to show that the
//! value is progress.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr_iter, memchr2};

use crate::progress::extract::number::{converted, factor, figure, hundredths, remainder, spelled};
use crate::progress::extract::words;
use crate::progress::extract::words::Role;
use crate::progress::value::{Number, ProgressValue};

/// Limit of the candidates for a value in one line. A line with more candidates is a table and is not read.
const CANDIDATES_MAX: usize = 8;

/// Limit of the spaces between the parts of a fraction. Some tools align the parts.
const GAP_MAX: usize = 6;

/// A value and its place in the line.
struct Candidate {
    start: usize,
    end: usize,
    figure: ProgressValue,
    /// The decimal places of a percentage; `None` for a fraction.
    decimals: Option<i32>,
    /// Whether the value measures something other than work.
    foreign: bool,
}

/// Finds "3 of 8".
static OF: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(" of "));

/// Returns the value of a line, if the line is certainly progress.
pub(super) fn figure_of(line: &str) -> Option<ProgressValue> {
    let bytes = line.as_bytes();
    // Nearly all lines contain none of these characters, so the cheapest test comes first.
    let may_hold = memchr2(b'%', b'/', bytes).is_some() || OF.find(bytes).is_some();
    if !may_hold {
        return curl(line);
    }
    if let Some(figure) = rsync(line) {
        return Some(figure);
    }
    let mut found = candidates(line)?;
    if found.is_empty() {
        return curl(line);
    }
    drop_foreign(line, &mut found);
    let meant = all_mean(&found).or_else(|| found.first().filter(|first| leads(line, first)))?;
    Some(meant.figure.clone())
}

/// Drops values that do not measure work, and fractions that repeat a percentage: "coverage 91.2%
/// (912/1000)".
fn drop_foreign(line: &str, found: &mut Vec<Candidate>) {
    let (foreign, own): (Vec<_>, Vec<_>) = found.drain(..).partition(|one| one.foreign);
    let is_same = |one: &Candidate| {
        let behind = |other: &Candidate| {
            let between = line.get(other.end..one.start);
            between.is_some_and(|between| matches!(between.trim(), "(" | "" | ":"))
        };
        foreign.iter().any(|other| agree(one, other) || behind(other))
    };
    let is_known =
        |one: &Candidate| own.iter().any(|other| other.decimals.is_some() && agree(one, other));
    let keep: Vec<bool> = own.iter().map(|one| is_known(one) || !is_same(one)).collect();
    found.extend(own.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|(one, _)| one));
}

/// Returns the value that all candidates agree on. A fraction is preferred to a percentage.
fn all_mean(found: &[Candidate]) -> Option<&Candidate> {
    // "task 1 of 1, 45 %": the value 1 of 1 means nothing if there is another value.
    let is_whole =
        |one: &&Candidate| one.figure.total.as_ref().is_some_and(|total| *total.text == *b"1");
    let mut telling: Vec<&Candidate> = found.iter().filter(|one| !is_whole(one)).collect();
    if telling.is_empty() {
        telling = found.iter().collect();
    }
    let agrees = |(at, one): (usize, &&Candidate)| {
        telling.iter().skip(at + 1).all(|other| agree(one, other))
    };
    if !telling.iter().enumerate().all(agrees) {
        return None;
    }
    let fraction = telling.iter().find(|one| one.decimals.is_none());
    fraction.or_else(|| telling.first()).copied()
}

/// Whether two values are equal, within the precision of a percentage.
fn agree(one: &Candidate, other: &Candidate) -> bool {
    let parts = |candidate: &Candidate| {
        let total = candidate.figure.total.as_ref().map_or(1.0, |total| total.value);
        candidate.figure.value.value / total * 100.0
    };
    let decimals = match (one.decimals, other.decimals) {
        (Some(one), Some(other)) => one.min(other),
        (one, other) => one.or(other).unwrap_or(0),
    };
    (parts(one) - parts(other)).abs() <= 10_f64.powi(-decimals) + 1e-9
}

/// Whether the first value of a line measures the whole work, whatever follows it. This is so for a value alone in
/// brackets (`[3/8] RUN …`, `[ 45%] Building …`, `(3/45) glibc …`), and for a percentage at the beginning of the line
/// (`45% [3 libfoo 27%]`, `45% building 120/340 modules`, `45.6% of 12MiB`).
fn leads(line: &str, first: &Candidate) -> bool {
    let (before, after) = (line.split_at(first.start).0, line.split_at(first.end).1);
    let opens = before.trim().is_empty() || before.trim_end().ends_with(']');
    let opens_round = before.trim() == "(" && after.starts_with(')');
    if first.decimals.is_none() || !opens {
        return opens_round || in_brackets(before, after);
    }
    let next = after.strip_prefix(' ').unwrap_or_default();
    next.starts_with('[')
        || next.starts_with("of ")
        || words::is_phase(next)
        || in_brackets(before, after)
}

/// Whether the value stands in square brackets: `[3/8]`, `[ 45%]`, `[builder 3/8]`.
fn in_brackets(before: &str, after: &str) -> bool {
    let inner = before.rsplit_once('[').map(|(_, inner)| inner.trim());
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    after.trim_start().starts_with(']')
        && inner.is_some_and(|inner| inner.chars().all(is_name) && inner.len() < 64)
}

fn candidates(line: &str) -> Option<Vec<Candidate>> {
    let bytes = line.as_bytes();
    if memchr_iter(b'%', bytes).any(|at| is_in_table(line.split_at(at).0)) {
        return None;
    }
    let percentages = memchr_iter(b'%', bytes).filter_map(|at| percentage(line, at));
    let fractions = memchr_iter(b'/', bytes).filter_map(|at| fraction(line, at, at + 1));
    let of = OF.find_iter(bytes).filter_map(|at| {
        let before = line.split_at(at).0;
        let end = before.strip_suffix(" out").map_or(at, str::len);
        fraction(line, end, at + 4)
    });
    let mut found: Vec<_> =
        percentages.chain(fractions).chain(of).take(CANDIDATES_MAX + 1).collect();
    found.sort_by_key(|candidate| candidate.start);
    (found.len() <= CANDIDATES_MAX).then_some(found)
}

/// Returns the percentage whose sign is at `at`.
fn percentage(line: &str, at: usize) -> Option<Candidate> {
    let (before, after) = (line.split_at(at).0, line.split_at(at + 1).1);
    let before = before.strip_suffix(' ').unwrap_or(before);
    let text = digits_behind(before);
    let start = before.len() - text.len();
    // In many countries 45.5 % is written as 45,5 %.
    let comma = text.split_once(',').filter(|(_, rest)| rest.len() < 3 && !rest.contains(','));
    let text = comma.map_or_else(|| text.to_owned(), |(whole, rest)| format!("{whole}.{rest}"));
    let value = number(&text)?;
    let next = after.chars().next();
    let is_joined = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '%' | '/' | '-');
    if next.is_some_and(is_joined) || is_joined_before(line, start) {
        return None;
    }
    let before = line.split_at(start).0;
    // In "45 / 100%" and "10 - 20%" the percentage is the end of a range.
    let range = before.trim_end().strip_suffix(['/', '-', '–']).map(str::trim_end);
    if range.is_some_and(|low| low.ends_with(|c: char| c.is_ascii_digit() || c == '%')) {
        return None;
    }
    let role = match in_brackets(before, after) {
        true => words::role_of_bracketed(before),
        false => words::role_of_percentage(before, after),
    };
    let foreign = role != Role::Done;
    let decimals = text.split_once('.').map_or(0, |(_, rest)| rest.len());
    let decimals = Some(i32::try_from(decimals).unwrap_or(0));
    Some(Candidate { start, end: at + 1, figure: hundredths(value)?, decimals, foreign })
}

/// Returns the fraction whose sign is between `from` and `to`.
fn fraction(line: &str, from: usize, to: usize) -> Option<Candidate> {
    let (before, after) = (line.split_at(from).0, line.split_at(to).1);
    let (start, value, unit) = part_behind(before)?;
    let (length, total, of) = part_ahead(after)?;
    let end = to + length;
    let (value, total) = match (unit, of) {
        (Some(unit), Some(of)) => (converted(number(value)?, unit, of)?, number(total)?),
        (Some(_), None) => return None,
        (None, _) => (number(value)?, number(total)?),
    };
    let (before, after) = (line.split_at(start).0, line.split_at(end).1);
    let has_unit = of.is_some();
    if is_joined_before(line, start) || is_joined_behind(before, after) || is_chain(before, after) {
        return None;
    }
    let bracketed = in_brackets(before, after);
    let is_decimal = [&value, &total].iter().any(|n| n.text.contains(&b'.'));
    if is_decimal && !has_unit && !bracketed && !words::tells_progress(before) {
        return None;
    }
    if !has_unit && words::is_date(&value, &total, line, start, end) {
        return None;
    }
    let figure = match words::role_of_fraction(before, after) {
        Role::Done => figure(value, Some(total))?,
        Role::Left => {
            // Both numbers must be a valid fraction before the remainder is computed.
            figure(value.clone(), Some(total.clone()))?;
            remainder(&value, total)?
        }
        Role::Other => return None,
    };
    Some(Candidate { start, end, figure, decimals: None, foreign: false })
}

/// Finds the number at the end of a text, with its unit in bytes. Returns where it begins, its digits, and the unit.
fn part_behind(text: &str) -> Option<(usize, &str, Option<f64>)> {
    let trimmed = text.trim_end_matches(' ');
    if text.len() - trimmed.len() > GAP_MAX {
        return None;
    }
    let bare = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = trimmed.split_at(bare.len()).1;
    let (spelled, unit) = match unit {
        "" => (trimmed, None),
        unit => (bare.strip_suffix(' ').unwrap_or(bare), Some(factor(unit)?)),
    };
    let digits = digits_behind(spelled);
    Some((spelled.len() - digits.len(), digits, unit)).filter(|(_, digits, _)| !digits.is_empty())
}

/// Finds the number at the beginning of a text, with its unit in bytes. Returns the length of both, the digits, and the
/// unit.
fn part_ahead(text: &str) -> Option<(usize, &str, Option<f64>)> {
    let trimmed = text.trim_start_matches(' ');
    let gap = text.len() - trimmed.len();
    let digits = digits_ahead(trimmed);
    if gap > GAP_MAX || digits.is_empty() {
        return None;
    }
    let rest = trimmed.split_at(digits.len()).1;
    let spaced = rest.strip_prefix(' ');
    let word = spaced.unwrap_or(rest);
    let length = word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len());
    let (unit, behind) = word.split_at(length);
    // In "3/4 k" the letter `k` is not a unit, and "MB/s" is a speed.
    let is_unit = spaced.is_none() || unit.len() > 1;
    let known = factor(unit).filter(|_| is_unit);
    if known.is_some() && behind.starts_with('/') {
        return None;
    }
    let with_unit = gap + digits.len() + usize::from(spaced.is_some()) + length;
    let end = if known.is_some() { with_unit } else { gap + digits.len() };
    Some((end, digits, known))
}

fn digits_behind(text: &str) -> &str {
    let start = text.trim_end_matches(is_numeric).len();
    text.split_at(start).1.trim_start_matches([',', '.'])
}

fn digits_ahead(text: &str) -> &str {
    let end = text.len() - text.trim_start_matches(is_numeric).len();
    text.split_at(end).0.trim_end_matches([',', '.'])
}

fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, ',' | '.')
}

/// Reads a number whose commas separate thousands, with at most one point.
fn number(text: &str) -> Option<Number> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    let mut rest = groups.peekable();
    let is_grouped = rest.peek().is_some();
    let fine = !first.is_empty()
        && (!is_grouped || first.len() <= 3)
        && rest.all(|group| group.len() == 3)
        && !decimals.is_empty()
        && decimals.bytes().all(|byte| byte.is_ascii_digit());
    fine.then(|| spelled(text))?
}

/// Whether the text at `start` is part of a longer word, number, path or range.
fn is_joined_before(line: &str, start: usize) -> bool {
    let before = line.split_at(start).0;
    let mut behind = before.chars().rev();
    let (last, second) = (behind.next(), behind.next());
    let word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let joined = match last {
        None => return false,
        Some('[') => word(second),
        Some('.') => second != Some('.'),
        Some('–') => second.is_some_and(|c| c.is_ascii_digit()),
        Some(':') => second.is_some_and(|c| c.is_ascii_digit()),
        Some('=') => matches!(second, Some('<' | '>' | '!')),
        Some(c) => {
            c.is_ascii_alphanumeric()
                || "._-+*/\\$€£@^&~`?,<".contains(c)
                    && !(c == '<' && second.is_none_or(char::is_whitespace))
        }
    };
    let token = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    joined || token.contains(['/', '\\', '?'])
}

/// Whether a fraction is part of a longer row: "page 3 of 10 of 40".
fn is_chain(before: &str, after: &str) -> bool {
    let ends_in_digit = |text: &str| text.ends_with(|c: char| c.is_ascii_digit());
    let next = after.strip_prefix(" of ").unwrap_or_default();
    next.starts_with(|c: char| c.is_ascii_digit())
        || before.strip_suffix(" of ").is_some_and(ends_in_digit)
}

/// Whether the text after a value continues it as a word, a number, a path or a time.
fn is_joined_behind(before: &str, after: &str) -> bool {
    let mut ahead = after.chars();
    let (next, second) = (ahead.next(), ahead.next());
    let word = second.is_some_and(|c| c.is_ascii_alphanumeric());
    match next {
        Some('.' | '-') => word,
        Some(':') => second.is_some_and(|c| c.is_ascii_digit()),
        // A quotation mark after a number means inches, unless it ends a quotation.
        Some('"') => !before.contains('"'),
        Some(c) => c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '\\' | '%' | '+' | '@'),
        None => false,
    }
}

/// Whether a percentage follows two or more columns of numbers.
fn is_in_table(before: &str) -> bool {
    let is_column = |token: &&str| {
        let bare = token.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        token.starts_with(|c: char| c.is_ascii_digit())
            && token.len() - bare.len() <= 3
            && bare.chars().all(is_numeric)
    };
    let percentage = before.trim_end_matches(is_numeric);
    percentage.len() < before.len()
        && percentage.split_whitespace().rev().take_while(is_column).count() >= 2
}

/// Returns the value in a line of rsync, which counts the files that remain: `to-chk=169/396`.
fn rsync(line: &str) -> Option<ProgressValue> {
    let (before, after) = line.split_once("-chk=")?;
    if !before.ends_with("to") && !before.ends_with("ir") {
        return None;
    }
    let left = digits_ahead(after);
    let total = digits_ahead(after.strip_prefix(left)?.strip_prefix('/')?);
    let (left, total) = (number(left)?, number(total)?);
    figure(left.clone(), Some(total.clone()))?;
    remainder(&left, total)
}

/// Returns the value in a row of curl's progress meter. The row has twelve columns: the first is a percentage, and
/// three are times.
fn curl(line: &str) -> Option<ProgressValue> {
    // The first column is enough to recognise nearly all lines that are not curl's.
    let line = line.trim_start();
    let (first, behind) = line.split_at(line.bytes().take_while(u8::is_ascii_digit).count());
    let is_column = !first.is_empty() && behind.starts_with(char::is_whitespace);
    if !is_column || first.trim_start_matches('0').len() > 3 {
        return None;
    }
    let columns: Vec<&str> = line.split_whitespace().take(13).collect();
    let [percent, total, part, .., spent, _, speed] = &columns[..] else { return None };
    let is_time = |text: &&str| {
        text.len() >= 7 && text.chars().all(|c| c == ':' || c == '-' || c.is_ascii_digit())
    };
    let is_count = |text: &&str| text.starts_with(|c: char| c.is_ascii_digit()) && text.len() < 8;
    let fits = columns.len() == 12
        && is_time(spent)
        && columns.iter().filter(|column| is_time(column)).count() == 3
        && [total, part, speed].into_iter().all(is_count)
        // If there is no `Content-Length`, curl shows a total of 0 and a percentage that stays at 0.
        && !total.starts_with('0');
    fits.then(|| hundredths(number(percent)?))?
}
