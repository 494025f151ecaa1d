//! Styled lines of `milepost top`, measured in columns of the terminal.

use std::fmt;

use console::Style;
use unicode_width::UnicodeWidthChar;

use crate::progress::clients::is_unprintable;

/// A text in one style, without characters that control the terminal.
#[derive(Debug, Clone, Default)]
pub(super) struct TopSpan {
    text: String,
    style: Style,
}

impl TopSpan {
    pub(super) fn new(text: impl Into<String>, style: &Style) -> Self {
        let mut text = text.into();
        text.retain(|sign| !is_unprintable(sign));
        Self { text, style: style.clone() }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, &Style::new())
    }
}

/// A line of the screen.
#[derive(Debug, Clone, Default)]
pub(super) struct TopLine {
    spans: Vec<TopSpan>,
}

impl From<Vec<TopSpan>> for TopLine {
    fn from(spans: Vec<TopSpan>) -> Self {
        Self { spans }
    }
}

impl fmt::Display for TopLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.iter().try_for_each(|span| f.write_str(&span.text))
    }
}

impl TopLine {
    pub(super) fn new(text: impl Into<String>, style: &Style) -> Self {
        Self { spans: vec![TopSpan::new(text, style)] }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { spans: vec![TopSpan::plain(text)] }
    }

    /// Returns the parts of the line.
    pub(super) fn into_spans(self) -> Vec<TopSpan> {
        self.spans
    }

    /// Returns the line, cut to this width.
    pub(super) fn cut(self, width: usize) -> Self {
        let mut left = width;
        let mut spans = Vec::with_capacity(self.spans.len());
        for mut span in self.spans {
            let fits = |sign: &char| {
                let rest = left.checked_sub(columns(*sign));
                left = rest.unwrap_or(left);
                rest.is_some()
            };
            let end: usize = span.text.chars().take_while(fits).map(char::len_utf8).sum();
            let is_cut = end < span.text.len();
            span.text.truncate(end);
            spans.push(span);
            if is_cut {
                break;
            }
        }
        Self { spans }
    }

    /// Returns the number of columns that the line takes.
    pub(super) fn width(&self) -> usize {
        self.spans.iter().flat_map(|span| span.text.chars()).map(columns).sum()
    }

    /// Returns the beginning of the line, at most this many columns wide; a longer line ends with `…`.
    pub(super) fn in_cell(self, width: usize) -> Self {
        if self.width() <= width || width == 0 {
            return self.at_left(width);
        }
        let Self { mut spans } = self.cut(width - 1);
        spans.push(TopSpan::plain("…"));
        Self { spans }.at_left(width)
    }

    /// Returns the line with exactly this width. `before` returns how many of the free columns are put before the text:
    /// none, half, or all of them.
    fn filled(self, width: usize, before: fn(usize) -> usize) -> Self {
        let cut = self.cut(width);
        let left = width.saturating_sub(cut.width());
        let Self { mut spans } = cut;
        let first = before(left);
        spans.insert(0, TopSpan::plain(" ".repeat(first)));
        spans.push(TopSpan::plain(" ".repeat(left - first)));
        Self { spans }
    }

    /// Returns the line with this width, its text at the left.
    pub(super) fn at_left(self, width: usize) -> Self {
        self.filled(width, |_| 0)
    }

    /// Returns the line with this width, its text at the right.
    pub(super) fn at_right(self, width: usize) -> Self {
        self.filled(width, |left| left)
    }

    /// Returns the line with this width, its text in the middle.
    pub(super) fn in_middle(self, width: usize) -> Self {
        self.filled(width, |left| left / 2)
    }

    /// Returns the line with text colour and background colour exchanged.
    pub(super) fn reversed(self) -> Self {
        let reversed = |span: TopSpan| TopSpan { style: span.style.reverse(), ..span };
        Self { spans: self.spans.into_iter().map(reversed).collect() }
    }

    /// Returns the line with the terminal's control sequences. Without colours, styles are still bold, dim or reversed.
    pub(super) fn painted(&self) -> String {
        let paint = |span: &TopSpan| {
            span.style.clone().force_styling(true).apply_to(&span.text).to_string()
        };
        self.spans.iter().map(paint).collect()
    }
}

/// Returns the number of columns that a character takes.
pub(super) fn columns(sign: char) -> usize {
    sign.width().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> TopLine {
        TopLine::from(vec![TopSpan::plain("日本"), TopSpan::new("abc", &Style::new().bold())])
    }

    #[test]
    fn lines_are_cut_and_filled_by_columns() {
        let cut = |width| line().cut(width).to_string();
        assert_eq!([3, 5, 7, 9].map(cut), ["日", "日本a", "日本abc", "日本abc"]);
        assert_eq!(line().at_left(9).to_string(), "日本abc  ");
        assert_eq!(line().at_right(9).to_string(), "  日本abc");
        assert_eq!(line().in_middle(10).to_string(), " 日本abc  ");
        assert_eq!(line().at_left(3).to_string(), "日 ");
        let in_cell = |width| line().in_cell(width).to_string();
        assert_eq!(
            [0, 1, 4, 6, 7, 8].map(in_cell),
            ["", "…", "日… ", "日本a…", "日本abc", "日本abc "]
        );
    }

    #[test]
    fn styles_are_painted_without_colours_too() {
        assert_eq!(line().painted(), "日本\u{1b}[1mabc\u{1b}[0m");
        let reversed = TopLine::plain("a").reversed().painted();
        assert_eq!(reversed, "\u{1b}[7ma\u{1b}[0m");
        assert_eq!(TopLine::plain("a\u{1b}[2Jb\n").painted(), "a[2Jb");
    }
}
