//! The template of plain progress: a message that differs from the last one only in its figure and its words
//! is read by comparison.

use std::ops::Range;

use crate::progress::intake::plain_progress::{self, LENGTH_MAX, PlainProgress, Reader};

/// The longest template, in bytes. A longer one is not kept: each filter has one.
const TEMPLATE_MAX: usize = 512;

/// The text of a notification without its figure and its words.
#[derive(Debug, Default)]
pub(crate) struct Template {
    /// The parts before, between and after the figure and the words; empty if there is no template.
    fixed: Vec<u8>,
    /// The end of the part before the first of the two.
    head: usize,
    /// The end of the part between the two; `None` if the message has no words.
    middle: Option<usize>,
    words_first: bool,
    token: Range<usize>,
    total: Option<(Range<usize>, f64)>,
}

impl Template {
    /// The template of `text`, which was read as `plain`; an empty one if the template is too long to keep.
    pub(crate) fn of(text: &[u8], plain: &PlainProgress<'_>) -> Self {
        let place = |part: &[u8]| {
            let start = part.as_ptr() as usize - text.as_ptr() as usize;
            start..start + part.len()
        };
        let figure = place(plain.figure);
        let words = plain.message.map(place);
        let words_first = words.as_ref().is_some_and(|words| words.start < figure.start);
        let (first, second) = match words {
            Some(words) if words_first => (words, Some(figure)),
            words => (figure, words),
        };
        let open = |at: usize| {
            let before = |gap: &Range<usize>| if gap.start < at { gap.len() } else { 0 };
            at - before(&first) - second.as_ref().map_or(0, before)
        };
        let fixed_place = |part: &[u8]| {
            let place = place(part);
            open(place.start)..open(place.end)
        };
        if open(text.len()) > TEMPLATE_MAX {
            return Self::default();
        }
        let mut fixed = Vec::with_capacity(open(text.len()));
        fixed.extend_from_slice(&text[..first.start]);
        fixed.extend_from_slice(
            &text[first.end..second.as_ref().map_or(text.len(), |second| second.start)],
        );
        if let Some(second) = &second {
            fixed.extend_from_slice(&text[second.end..]);
        }
        Self {
            head: open(first.start),
            middle: second.as_ref().map(|second| open(second.start)),
            words_first,
            token: fixed_place(plain.token),
            total: plain.total.map(|(text, value)| (fixed_place(text), value)),
            fixed,
        }
    }

    /// Reads a message that differs from the template only in its figure and its words. `None` says nothing
    /// about a message.
    pub(crate) fn read<'a>(&'a self, text: &'a [u8]) -> Option<PlainProgress<'a>> {
        let head = self.fixed.get(..self.head).filter(|head| !head.is_empty())?;
        if text.len() > LENGTH_MAX || !text.starts_with(head) {
            return None;
        }
        let mut reader = Reader { text, at: head.len() };
        let (mut figure, mut message) = (None, None);
        if self.words_first {
            message = Some(reader.string()?);
        } else {
            figure = Some(reader.number()?);
        }
        let mut rest = &self.fixed[self.head..];
        if let Some(end) = self.middle {
            let middle = &self.fixed[self.head..end];
            if !text[reader.at..].starts_with(middle) {
                return None;
            }
            reader.at += middle.len();
            rest = &self.fixed[end..];
            if self.words_first {
                figure = Some(reader.number()?);
            } else {
                message = Some(reader.string()?);
            }
        }
        let figure = figure?;
        if text[reader.at..] != *rest || message.is_some_and(|text| !plain_progress::is_utf8(text))
        {
            return None;
        }
        Some(PlainProgress {
            token: &self.fixed[self.token.clone()],
            progress: plain_progress::value(figure)?,
            figure,
            total: self.total.as_ref().map(|(place, value)| (&self.fixed[place.clone()], *value)),
            message,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXTS: [&str; 5] = [
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1,"total":10,"message":"one"}}"#,
        r#"{"params":{"message":"one","total":10,"progress":1.5,"progressToken":"a"},"method":"notifications/progress","jsonrpc":"2.0"}"#,
        r#" { "jsonrpc" : "2.0", "method":"notifications/progress", "params" : {"progressToken":7,"progress" : -1 } } "#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":7,"message":""}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"m","progressToken":7,"progress":1}}"#,
    ];

    #[test]
    fn a_message_that_differs_in_figure_and_words_is_read() {
        for text in TEXTS {
            let first = PlainProgress::read(text.as_bytes()).unwrap();
            let template = Template::of(text.as_bytes(), &first);
            assert_eq!(template.read(text.as_bytes()), Some(first));
            let next =
                text.replace("one", "t\\\"wo é").replace("-1 ", "-2 ").replace("1.5", "12.25");
            let read = template.read(next.as_bytes());
            assert!(read.is_some(), "{next}");
            assert_eq!(read, PlainProgress::read(next.as_bytes()));
        }
    }

    #[test]
    fn a_long_message_leaves_no_template() {
        let text = TEXTS[0].replace(
            "\"progressToken\":7",
            &format!("\"progressToken\":\"{}\"", "t".repeat(TEMPLATE_MAX)),
        );
        let plain = PlainProgress::read(text.as_bytes()).unwrap();
        assert!(Template::of(text.as_bytes(), &plain).read(text.as_bytes()).is_none());
    }

    proptest! {
        #[test]
        fn a_template_reads_no_message_otherwise(
            (of, at, cut) in (0..TEXTS.len(), 0_usize..200, 0_usize..4),
            put in prop::collection::vec(prop_oneof![
                prop::sample::select(br#"019.-e+"\\u {}[]:,n"#.to_vec()), any::<u8>(),
            ], 0..4),
        ) {
            let text = TEXTS[of].as_bytes();
            let template = Template::of(text, &PlainProgress::read(text).unwrap());
            let at = at.min(text.len());
            let mut changed = text.to_vec();
            changed.splice(at..(at + cut).min(text.len()), put);
            if let Some(read) = template.read(&changed) {
                prop_assert_eq!(Some(read), PlainProgress::read(&changed));
            }
        }
    }
}
