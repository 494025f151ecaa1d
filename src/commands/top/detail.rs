//! One call with its messages, as `milepost top` shows it.

use serde::Deserialize;
use similar::{ChangeTag, TextDiff};

use super::lines::{TopLine, TopSpan, columns};
use super::style::Styles;
use crate::progress::clients::is_unprintable;

/// Minimum number of columns to show a message's two versions side by side.
const BESIDE_MIN: usize = 90;

/// Maximum number of lines of one message that are shown. Each message has at most 2 KiB.
const LINES_MAX: usize = 400;

/// Maximum number of indented levels; deeper levels are not indented further.
const DEPTH_MAX: usize = 20;

/// A call with its messages, as `/calls/N` describes it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct TopDetail {
    left_out: u64,
    messages: Vec<TopMessage>,
}

/// A message of a call.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct TopMessage {
    at: u64,
    what: String,
    why: Vec<String>,
    because: Vec<String>,
    before: Option<String>,
    after: Option<String>,
}

impl TopDetail {
    /// Returns the number of messages that are kept.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the messages as lines of this width.
    pub(super) fn lines(&self, width: usize, styles: &Styles) -> Vec<TopLine> {
        let mut lines = Vec::new();
        for (at, message) in self.messages.iter().enumerate() {
            // The first 16 messages of a call are always kept; the messages left out come after them.
            if self.left_out > 0 && at == self.messages.len().min(16) {
                let count = self.left_out;
                let text = format!("{count} messages between are no longer kept");
                lines.push(TopLine::new(text, &styles.dim));
                lines.push(TopLine::default());
            }
            message.head(styles, &mut lines);
            message.sides(width, styles, &mut lines);
            lines.push(TopLine::default());
        }
        lines
    }
}

impl TopMessage {
    fn head(&self, styles: &Styles, lines: &mut Vec<TopLine>) {
        let seconds = std::time::Duration::from_millis(self.at).as_secs_f64();
        let mut spans = vec![
            TopSpan::new(format!("+{seconds:.2} s  "), &styles.dim),
            TopSpan::new(self.what.clone(), styles.of_verdict(&self.what)),
        ];
        if !self.why.is_empty() {
            let why = format!(" {}", self.why.join(", "));
            spans.push(TopSpan::new(why, styles.of_verdict(&self.what)));
        }
        if !self.because.is_empty() {
            spans.push(TopSpan::plain(format!(": {}", self.because.join("; "))));
        }
        lines.push(TopLine::from(spans));
    }

    fn sides(&self, width: usize, styles: &Styles, lines: &mut Vec<TopLine>) {
        let (speaker, hearer) = match self.what.as_str() {
            "request" | "said" => ("the client said", "the server got"),
            _ => ("the server said", "the client got"),
        };
        let left = self.before.as_deref().map(pretty);
        let right = self.after.as_deref().map(pretty);
        let half = width.saturating_sub(3) / 2;
        match (left, right) {
            (None, None) => {}
            (Some(left), None) => {
                let title = match self.what.as_str() {
                    "withheld" => format!("{speaker}; {hearer} nothing"),
                    _ => format!("{speaker}; {hearer} the same"),
                };
                lines.push(TopLine::new(title, &styles.dim));
                lines.extend(left.iter().flat_map(|line| wrapped(line, width)).map(TopLine::plain));
            }
            (None, Some(right)) => {
                let title = format!("{hearer}, from Milepost");
                lines.push(TopLine::new(title, &styles.dim));
                lines
                    .extend(right.iter().flat_map(|line| wrapped(line, width)).map(TopLine::plain));
            }
            (Some(left), Some(right)) if width >= BESIDE_MIN => {
                let title = format!("{}   {hearer}", padded(speaker, half));
                lines.push(TopLine::new(title, &styles.dim));
                beside(&left, &right, half, styles, lines);
            }
            (Some(left), Some(right)) => {
                for (title, side, other, style) in [
                    (speaker, &left, &right, &styles.removed),
                    (hearer, &right, &left, &styles.added),
                ] {
                    lines.push(TopLine::new(title, &styles.dim));
                    for line in side {
                        let is_same = other.iter().any(|other| bare(other) == bare(line));
                        let style = if is_same { &styles.plain } else { style };
                        let parts = wrapped(line, width).into_iter();
                        lines.extend(parts.map(|part| TopLine::new(part, style)));
                    }
                }
            }
        }
    }
}

/// Puts two texts side by side. Lines that differ are in the same row, in another style.
fn beside(
    left: &[String],
    right: &[String],
    half: usize,
    styles: &Styles,
    lines: &mut Vec<TopLine>,
) {
    let [old, new] =
        [left, right].map(|side| side.iter().map(|line| bare(line)).collect::<Vec<_>>());
    let diff = TextDiff::from_slices(&old, &new);
    // Removed and added lines that are not in a row yet.
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    let mut rows: Vec<(Option<&String>, Option<&String>, bool)> = Vec::new();
    for change in diff.iter_all_changes() {
        let before = change.old_index().and_then(|at| left.get(at));
        let after = change.new_index().and_then(|at| right.get(at));
        match change.tag() {
            ChangeTag::Delete => removed.push(before),
            ChangeTag::Insert => added.push(after),
            ChangeTag::Equal => {
                pair_up(&mut removed, &mut added, &mut rows);
                rows.push((before, after, true));
            }
        }
    }
    pair_up(&mut removed, &mut added, &mut rows);
    for (before, after, is_same) in rows.into_iter().take(LINES_MAX) {
        let [before, after] =
            [before, after].map(|line| line.map(|line| wrapped(line, half)).unwrap_or_default());
        for at in 0..before.len().max(after.len()) {
            let one = |side: &[String]| side.get(at).cloned().unwrap_or_default();
            let (minus, plus) = if is_same {
                (&styles.plain, &styles.plain)
            } else {
                (&styles.removed, &styles.added)
            };
            lines.push(TopLine::from(vec![
                TopSpan::new(padded(&one(&before), half), minus),
                TopSpan::new(" │ ", &styles.dim),
                TopSpan::new(one(&after), plus),
            ]));
        }
    }
}

/// Puts lines that differ into the same rows, in their order.
fn pair_up<'a>(
    removed: &mut Vec<Option<&'a String>>,
    added: &mut Vec<Option<&'a String>>,
    rows: &mut Vec<(Option<&'a String>, Option<&'a String>, bool)>,
) {
    for at in 0..removed.len().max(added.len()) {
        let one = |side: &[Option<&'a String>]| side.get(at).copied().flatten();
        rows.push((one(removed), one(added), false));
    }
    removed.clear();
    added.clear();
}

/// Returns a line without a final comma, because that comma only depends on whether another line follows.
fn bare(line: &str) -> &str {
    line.strip_suffix(',').unwrap_or(line)
}

/// Splits a text into lines of at most this width.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for sign in text.chars().filter(|sign| !is_unprintable(*sign)) {
        if used + columns(sign) > width.max(8) {
            lines.push(String::new());
            used = 0;
        }
        used += columns(sign);
        if let Some(last) = lines.last_mut() {
            last.push(sign);
        }
    }
    lines
}

fn padded(text: &str, width: usize) -> String {
    let used: usize = text.chars().map(columns).sum();
    format!("{text}{}", " ".repeat(width.saturating_sub(used)))
}

/// Returns JSON indented; only white space between tokens is changed. The text may be incomplete.
fn pretty(text: &str) -> Vec<String> {
    if !text.trim_start().starts_with(['{', '[']) {
        return text.lines().take(LINES_MAX).map(str::to_owned).collect();
    }
    let mut lines = vec![String::new()];
    let mut depth: usize = 0;
    let (mut in_string, mut is_escaped, mut last) = (false, false, ' ');
    for sign in text.chars() {
        if in_string {
            push(&mut lines, sign);
            in_string = is_escaped || sign != '"';
            is_escaped = !is_escaped && sign == '\\';
            last = sign;
            continue;
        }
        let is_opened = matches!(last, '{' | '[');
        match sign {
            _ if sign.is_ascii_whitespace() => continue,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !is_opened {
                    next(&mut lines, depth);
                }
                push(&mut lines, sign);
            }
            _ => {
                if is_opened || last == ',' {
                    next(&mut lines, depth);
                }
                push(&mut lines, sign);
                match sign {
                    ':' => push(&mut lines, ' '),
                    '{' | '[' => depth += 1,
                    '"' => in_string = true,
                    _ => {}
                }
            }
        }
        last = sign;
    }
    lines.truncate(LINES_MAX);
    lines
}

fn push(lines: &mut [String], sign: char) {
    if let Some(last) = lines.last_mut() {
        last.push(sign);
    }
}

fn next(lines: &mut Vec<String>, depth: usize) {
    lines.push("  ".repeat(depth.min(DEPTH_MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::style::Colours;

    #[test]
    fn json_is_indented_and_may_end_anywhere() {
        let check = |text: &str, lines: &[&str]| assert_eq!(pretty(text), lines, "{text}");
        check(
            r#"{"a":[1,2],"b":{}}"#,
            &["{", "  \"a\": [", "    1,", "    2", "  ],", "  \"b\": {}", "}"],
        );
        check(r#"{"a":"x, {y} \" "#, &["{", "  \"a\": \"x, {y} \\\" "]);
        check("no { json", &["no { json"]);
        check("[]", &["[]"]);
    }

    #[test]
    fn what_differs_stands_side_by_side() {
        let detail: TopDetail = serde_json::from_str(
            r#"{"left_out":0,"messages":[{"at":250,"what":"repaired","why":["token"],"because":["b"],
                "before":"{\"t\":\"x\",\"p\":1}","after":"{\"t\":7,\"p\":1,\"m\":2}"}]}"#,
        )
        .unwrap();
        let text = |width| {
            let lines = detail.lines(width, &Styles::new(Colours::Off)).into_iter();
            lines.map(|line| line.to_string().trim_end().to_owned()).collect::<Vec<_>>()
        };
        let wide = text(100);
        assert_eq!(wide[0], "+0.25 s  repaired token: b");
        let half = 48;
        let row = |left: &str, right: &str| format!("{} │ {right}", padded(left, half));
        assert_eq!(wide[3], row("  \"t\": \"x\",", "  \"t\": 7,"));
        assert_eq!(wide[4], row("  \"p\": 1", "  \"p\": 1,"));
        assert_eq!(wide[5], row("", "  \"m\": 2"));
        let narrow = text(60);
        assert!(narrow.contains(&"the server said".to_owned()));
        assert!(narrow.contains(&"the client got".to_owned()));
    }

    #[test]
    fn long_lines_are_cut_by_columns() {
        assert_eq!(wrapped("abcdefghij", 8), ["abcdefgh", "ij"]);
        assert_eq!(wrapped("日本語日本", 8), ["日本語日", "本"]);
        assert_eq!(wrapped("a\u{1b}b\u{202e}c", 8), ["abc"]);
    }
}
