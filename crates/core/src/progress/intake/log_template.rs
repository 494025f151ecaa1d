//! Templates of log messages. A log message that differs from an earlier one only in its text is recognised by a
//! comparison.

use smallvec::SmallVec;

use crate::progress::dialect::plain_progress::{LENGTH_MAX, Reader};
use crate::progress::payload::within;
use crate::protocol::jsonrpc::Message;
use crate::protocol::{json, unicode};

/// Limit of the length of a log message, in bytes without its text, that is kept as a template.
const LOG_TEMPLATE_MAX: usize = 512;

/// Limit of the log templates of one filter. There are two, because a server may log at two levels.
const LOG_TEMPLATES_MAX: usize = 2;

/// Templates of the last log messages whose data is a string.
#[derive(Debug, Default)]
pub(crate) struct LogTemplates {
    known: SmallVec<[Box<LogTemplate>; 1]>,
    /// The index of the template that is replaced next.
    oldest: usize,
}

/// A log message without its text.
#[derive(Debug)]
struct LogTemplate {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl LogTemplates {
    /// Whether a message differs from an earlier log message only in its text.
    pub(crate) fn know(&self, text: &[u8]) -> bool {
        text.len() <= LENGTH_MAX && self.known.iter().any(|known| known.fits(text))
    }

    /// Keeps a template of a log message.
    pub(crate) fn note(&mut self, message: &Message) {
        let Some(template) = LogTemplate::of(message) else { return };
        if self.known.len() < LOG_TEMPLATES_MAX {
            self.known.push(Box::new(template));
        } else {
            *self.known[self.oldest] = template;
            self.oldest = (self.oldest + 1) % LOG_TEMPLATES_MAX;
        }
    }
}

impl LogTemplate {
    /// Returns the template of a log message; `None` if its data is not an ordinary string, or the rest is too long to
    /// keep.
    fn of(message: &Message) -> Option<Self> {
        let raw = message.raw();
        let data = json::member(&message.params()?, "data")?;
        let place = within(raw, &data)?;
        let mut reader = Reader { text: raw, at: place.start };
        // The reader of the fast path must find the same string. Otherwise a comparison with this template would stop
        // in the middle of the text.
        let is_string = reader.string() == Some(&data[..]);
        if !is_string || !message.is_strict() || raw.len() - data.len() > LOG_TEMPLATE_MAX {
            return None;
        }
        Some(Self { head: raw[..place.start].to_vec(), tail: raw[place.end..].to_vec() })
    }

    fn fits(&self, text: &[u8]) -> bool {
        if !text.starts_with(&self.head) {
            return false;
        }
        let mut reader = Reader { text, at: self.head.len() };
        let words = reader.string();
        words.is_some_and(unicode::is_utf8) && text[reader.at..] == self.tail
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::jsonrpc::Kind;
    use crate::protocol::mcp;

    const TEXTS: [&str; 3] = [
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"one"}}"#,
        r#" {"params":{"data": "one" ,"level":"debug","logger":"a"},"method":"notifications/message","jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"o\n"}} "#,
    ];

    fn template(text: &str) -> Option<LogTemplate> {
        LogTemplate::of(&Message::parse(text.to_owned().into()))
    }

    #[test]
    fn other_words_fit_and_other_messages_do_not() {
        let template = template(TEXTS[0]).unwrap();
        let fits = |words: &str| template.fits(TEXTS[0].replace("\"one\"", words).as_bytes());
        assert!(fits("\"one\"") && fits("\"\"") && fits(r#""tw\"o é _meta""#));
        assert!(!fits("1") && !fits("\"a") && !fits("\"a\" ") && !fits("\"\\u0041\""));
        assert!(!fits("\"a\",\"data\":\"b\"") && !fits("\"\t\""));
        assert!(!template.fits(TEXTS[0].replace("info", "debug").as_bytes()));
    }

    #[test]
    fn data_that_is_no_string_has_no_template() {
        assert!(template(&TEXTS[0].replace("\"one\"", "{\"msg\":\"one\"}")).is_none());
        assert!(template(&TEXTS[0].replace("data", "other")).is_none());
        assert!(template(&TEXTS[0].replace("info", &"i".repeat(LOG_TEMPLATE_MAX))).is_none());
    }

    proptest! {
        #[test]
        fn what_fits_is_a_log_message(
            (of, at, cut) in (0..TEXTS.len(), 0_usize..200, 0_usize..4),
            put in prop::collection::vec(prop_oneof![
                prop::sample::select(br#"01"\\u {}[]:,n_meta"#.to_vec()), any::<u8>(),
            ], 0..4),
        ) {
            let text = TEXTS[of].as_bytes();
            let at = at.min(text.len());
            let mut changed = text.to_vec();
            changed.splice(at..(at + cut).min(text.len()), put);
            if template(TEXTS[of]).unwrap().fits(&changed) {
                let message = Message::parse(changed.into());
                prop_assert_eq!(message.kind(), Kind::Notification);
                let method = message.method();
                prop_assert_eq!(method.as_deref(), Some(mcp::LOG));
                prop_assert!(message.is_strict());
            }
        }
    }
}
