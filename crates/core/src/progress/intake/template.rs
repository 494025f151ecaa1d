//! Templates of plain progress. A message that differs from an earlier one only in its value and its text is read by a
//! comparison.

use std::ops::Range;

use smallvec::SmallVec;

use crate::progress::dialect::plain_progress::{LENGTH_MAX, PlainMembers, Reader};
use crate::protocol::unicode;

/// Limit of the length of a template, in bytes. A longer template is not kept, because each filter has several.
const TEMPLATE_MAX: usize = 512;

/// Limit of the templates of one filter. There are two, because a server may write progress in two forms, for instance
/// with and without a value.
const TEMPLATES_MAX: usize = 2;

/// Templates of the last plain progress.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    known: SmallVec<[Box<Template>; 1]>,
    /// The index of the template that is replaced next.
    oldest: usize,
}

impl Templates {
    /// Reads a message; `None` if the message is not plain progress, or is unusual in any way.
    pub(crate) fn read<'a>(&mut self, text: &'a [u8]) -> Option<PlainMembers<'a>> {
        if let Some(members) = self.known.iter().find_map(|template| template.read(text)) {
            return Some(members);
        }
        let members = PlainMembers::read(text)?;
        if let Some(template) = Template::of(text, &members) {
            if self.known.len() < TEMPLATES_MAX {
                self.known.push(Box::new(template));
            } else {
                *self.known[self.oldest] = template;
                self.oldest = (self.oldest + 1) % TEMPLATES_MAX;
            }
        }
        Some(members)
    }
}

/// A notification without its value and its message text.
#[derive(Debug)]
struct Template {
    fixed: Vec<u8>,
    gaps: SmallVec<[Gap; 2]>,
    token: Option<Range<usize>>,
    /// The range of the total, and its value.
    total: Option<(Range<usize>, Option<f64>)>,
}

/// A place in a template whose content differs from message to message.
#[derive(Debug)]
struct Gap {
    /// The position in the fixed text.
    at: usize,
    /// Whether the content is the message text; otherwise it is the value.
    is_words: bool,
}

impl Template {
    /// Returns the template of `text`, which was read as `members`; `None` if the template is too long to keep.
    fn of(text: &[u8], members: &PlainMembers<'_>) -> Option<Self> {
        let place = |part: &[u8]| {
            // The members are slices of `text`, so their positions follow from the addresses.
            let start = part.as_ptr() as usize - text.as_ptr() as usize;
            start..start + part.len()
        };
        let figure = members.progress.map(|part| (place(part), false));
        let words = members.message.map(|part| (place(part), true));
        let mut cut: SmallVec<[(Range<usize>, bool); 2]> =
            figure.into_iter().chain(words).collect();
        cut.sort_by_key(|(part, _)| part.start);
        let fixed_length = text.len() - cut.iter().map(|(part, _)| part.len()).sum::<usize>();
        if fixed_length > TEMPLATE_MAX {
            return None;
        }
        let in_fixed = |at: usize| {
            let before = cut.iter().filter(|(part, _)| part.start < at);
            at - before.map(|(part, _)| part.len()).sum::<usize>()
        };
        let fixed_place = |part: &[u8]| in_fixed(place(part).start)..in_fixed(place(part).end);
        let mut fixed = Vec::with_capacity(fixed_length);
        let mut from = 0;
        for (part, _) in &cut {
            fixed.extend_from_slice(&text[from..part.start]);
            from = part.end;
        }
        fixed.extend_from_slice(&text[from..]);
        let gap = |(part, is_words): &(Range<usize>, bool)| Gap {
            at: in_fixed(part.start),
            is_words: *is_words,
        };
        Some(Self {
            fixed,
            gaps: cut.iter().map(gap).collect(),
            token: members.token.map(fixed_place),
            total: members.total.map(|(part, value)| (fixed_place(part), value)),
        })
    }

    /// Reads a message that differs from the template only in its value and its text. `None` only means that the
    /// message does not fit this template.
    fn read<'a>(&self, text: &'a [u8]) -> Option<PlainMembers<'a>> {
        if text.len() > LENGTH_MAX {
            return None;
        }
        let mut reader = Reader { text, at: 0 };
        let mut read = PlainMembers::default();
        let (mut from, mut lengths) = (0, [0; 2]);
        for (gap, length) in self.gaps.iter().zip(&mut lengths) {
            let part = &self.fixed[from..gap.at];
            if !text[reader.at..].starts_with(part) {
                return None;
            }
            reader.at += part.len();
            let start = reader.at;
            if gap.is_words {
                read.message = Some(reader.string()?).filter(|words| unicode::is_utf8(words));
                read.message?;
            } else {
                read.progress = Some(reader.number()?);
            }
            *length = reader.at - start;
            from = gap.at;
        }
        if text[reader.at..] != self.fixed[from..] {
            return None;
        }
        let moved = |place: &Range<usize>| {
            // Positions after a gap are shifted by the length of the text that fills the gap in this message.
            let before = self.gaps.iter().zip(lengths).filter(|(gap, _)| gap.at <= place.start);
            let by: usize = before.map(|(_, length)| length).sum();
            &text[place.start + by..place.end + by]
        };
        read.token = self.token.as_ref().map(moved);
        read.total = self.total.as_ref().map(|(place, value)| (moved(place), *value));
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXTS: [&str; 8] = [
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1,"total":10,"message":"one"}}"#,
        r#"{"params":{"message":"one","total":10,"progress":1.5,"progressToken":"a"},"method":"notifications/progress","jsonrpc":"2.0"}"#,
        r#" { "jsonrpc" : "2.0", "method":"notifications/progress", "params" : {"progressToken":7,"progress" : -1 } } "#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":7,"message":""}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"m","progressToken":7,"progress":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"message":"one"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"total":10}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"total":3}}"#,
    ];

    fn template(text: &str) -> Template {
        let members = PlainMembers::read(text.as_bytes()).unwrap();
        Template::of(text.as_bytes(), &members).unwrap()
    }

    #[test]
    fn a_message_that_differs_in_figure_and_words_is_read() {
        for text in TEXTS {
            let template = template(text);
            assert_eq!(template.read(text.as_bytes()), PlainMembers::read(text.as_bytes()));
            let next =
                text.replace("one", "t\\\"wo é").replace("-1 ", "-2 ").replace("1.5", "12.25");
            let read = template.read(next.as_bytes());
            assert!(read.is_some(), "{next}");
            assert_eq!(read, PlainMembers::read(next.as_bytes()));
        }
    }

    #[test]
    fn a_long_message_leaves_no_template() {
        let text = TEXTS[0].replace(
            "\"progressToken\":7",
            &format!("\"progressToken\":\"{}\"", "t".repeat(TEMPLATE_MAX)),
        );
        let members = PlainMembers::read(text.as_bytes()).unwrap();
        assert!(Template::of(text.as_bytes(), &members).is_none());
    }

    #[test]
    fn the_last_two_shapes_are_known() {
        let mut templates = Templates::default();
        for text in TEXTS.iter().chain(&TEXTS) {
            assert_eq!(templates.read(text.as_bytes()), PlainMembers::read(text.as_bytes()));
        }
        assert_eq!(templates.known.len(), TEMPLATES_MAX);
        for text in &TEXTS[6..] {
            assert!(templates.known.iter().any(|known| known.read(text.as_bytes()).is_some()));
        }
    }

    proptest! {
        #[test]
        fn a_template_reads_no_message_otherwise(
            (of, at, cut) in (0..TEXTS.len(), 0_usize..200, 0_usize..4),
            put in prop::collection::vec(prop_oneof![
                prop::sample::select(br#"019.-e+"\\u {}[]:,n"#.to_vec()), any::<u8>(),
            ], 0..4),
        ) {
            let template = template(TEXTS[of]);
            let text = TEXTS[of].as_bytes();
            let at = at.min(text.len());
            let mut changed = text.to_vec();
            changed.splice(at..(at + cut).min(text.len()), put);
            if let Some(read) = template.read(&changed) {
                prop_assert_eq!(Some(read), PlainMembers::read(&changed));
            }
        }
    }
}
