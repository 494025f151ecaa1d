//! Names that belong to no call: tokens that a server has used while no call was open, and names of jobs in answers.
//!
//! Some tools start a job, answer immediately with the job's id, and report on the job with this id as token. If
//! another call is then the only open call, the report must not be taken for its progress.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::progress::correlate::ledger::KEY_MAX;
use crate::protocol::jsonrpc::Key;

/// Limit of the tokens that are remembered because they came while no call was open. The oldest is forgotten first.
const STRAYS_MAX: usize = 256;

/// Limit of the bytes of one answer that are searched for names of jobs. Of a longer answer, only the beginning and the
/// end are kept, each with half of this limit.
const ANSWER_BYTES_MAX: usize = 8 << 10;

/// Limit of the bytes of all answers that are searched for names of jobs. The oldest answer is forgotten first.
const ANSWERS_BYTES_MAX: usize = 32 << 10;

/// Limit of the time for which a name in an answer is remembered.
const NAMED_MAX: Duration = Duration::from_secs(60);

/// Words that show that the following number is a name: `"jobId":17`, `Job #17`.
const NAMING_WORDS: [&str; 9] =
    ["id", "job", "task", "handle", "token", "key", "run", "ticket", "request"];

/// The names of one connection that belong to no call.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// Allocated with the first name, because most filters see one request and no name of this kind.
    known: Option<Box<StrayNames>>,
    /// Whether no further call will open. Then no name needs to be remembered.
    is_last_call: bool,
}

#[derive(Debug, Default)]
struct StrayNames {
    names: VecDeque<Key>,
    /// The texts of the last answers, joined. Copied, because a slice would keep a whole read buffer in memory, and
    /// nearly no server uses a name from an answer.
    text: VecDeque<u8>,
    /// The time and the length of each answer in `text`.
    answers: VecDeque<(Instant, usize)>,
}

impl Strays {
    /// Notes that no further call will open, so that no name can be mistaken for the name of a later call.
    pub(crate) fn expect_no_call(&mut self) {
        self.is_last_call = true;
    }

    /// Remembers a token that came while no call was open.
    pub(crate) fn add(&mut self, name: &Key) {
        self.known.get_or_insert_default().add(name);
    }

    /// Remembers the result of a call that was just answered, because it may contain names of jobs.
    pub(crate) fn note_answer(&mut self, now: Instant, result: &[u8]) {
        // The filter of a single request remembers no names, because no later call can use them.
        if !self.is_last_call {
            self.known.get_or_insert_default().note_answer(now, result);
        }
    }

    /// Whether a name belongs to no call. `now` is `None` if the time is unknown.
    pub(crate) fn contains(&self, name: &Key, now: Option<Instant>) -> bool {
        self.known
            .as_ref()
            .is_some_and(|known| known.names.contains(name) || known.is_in_answer(name, now))
    }
}

impl StrayNames {
    fn add(&mut self, name: &Key) {
        if name.len() > KEY_MAX || self.names.contains(name) {
            return;
        }
        if self.names.len() >= STRAYS_MAX {
            self.names.pop_front();
        }
        self.names.push_back(name.clone());
    }

    fn note_answer(&mut self, now: Instant, result: &[u8]) {
        let half = ANSWER_BYTES_MAX / 2;
        let (head, tail) = match result.len() {
            0..=ANSWER_BYTES_MAX => (result, &[][..]),
            length => (&result[..half], &result[length - half..]),
        };
        let length = head.len() + tail.len();
        while let Some((at, oldest)) = self.answers.front().copied()
            && (self.text.len() + length > ANSWERS_BYTES_MAX || now >= at + NAMED_MAX)
        {
            self.answers.pop_front();
            self.text.drain(..oldest);
        }
        self.text.extend(head);
        self.text.extend(tail);
        self.answers.push_back((now, length));
    }

    fn is_in_answer(&self, name: &Key, now: Option<Instant>) -> bool {
        let spelled = name.to_string();
        let text = match name {
            Key::Text(text) => text,
            _ => spelled.as_bytes(),
        };
        if text.is_empty() {
            return false;
        }
        let finder = memchr::memmem::Finder::new(text);
        let mut from = 0;
        self.answers.iter().any(|(at, length)| {
            let range = from..from + length;
            from = range.end;
            if now.is_some_and(|now| now >= *at + NAMED_MAX) {
                return false;
            }
            // Copied, because the ring buffer may wrap inside an answer, and the search needs one slice.
            let answer: Vec<u8> = self.text.range(range).copied().collect();
            finder.find_iter(&answer).any(|at| is_name(&answer, at, text))
        })
    }
}

/// Whether `text`, found at `at` in an answer, is a name there. It is not if it is a part of another word, a count, or
/// an ordinary word of a sentence.
fn is_name(answer: &[u8], at: usize, text: &[u8]) -> bool {
    let (before, after) = (&answer[..at], &answer[at + text.len()..]);
    let is_number = text.iter().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte));
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte) || byte >= 0x80;
    let continues = |rest: &[u8]| match rest {
        // The dot is a decimal point if a digit follows, so the number continues.
        [b'.', next, ..] if is_number => next.is_ascii_digit(),
        [first, ..] => is_word(*first),
        [] => false,
    };
    let precedes = match before {
        // The letter of an escape (`\n`) does not belong to the word that follows.
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => false,
        [.., digit, b'.'] if is_number => digit.is_ascii_digit(),
        [.., last] => is_word(*last),
        [] => false,
    };
    if precedes || continues(after) {
        return false;
    }
    // A text with mixed characters (`job-7f3a`, a UUID) can only be a name.
    if !is_number && !text.iter().all(u8::is_ascii_alphabetic) {
        return true;
    }
    // A plain number or word is a name only if the text next to it shows this. Otherwise the 3 in "3 files" would
    // withhold progress with the token 3 from a later call.
    !is_number && is_quoted_value(before, after) || is_behind_naming_word(before)
}

/// Whether the text between `before` and `after` is a complete JSON string, but not a member's name. The JSON may
/// itself be inside a string.
fn is_quoted_value(before: &[u8], after: &[u8]) -> bool {
    let after = after.strip_prefix(b"\\").unwrap_or(after);
    let Some(rest) = after.strip_prefix(b"\"") else { return false };
    before.ends_with(b"\"") && !rest.trim_ascii_start().starts_with(b":")
}

/// Whether the text ends with a word that introduces a name, such as `job` or `id`.
fn is_behind_naming_word(before: &[u8]) -> bool {
    let between = |byte: &u8| b" \"'\\:=#".contains(byte);
    let end = before.iter().rposition(|byte| !between(byte)).map_or(0, |last| last + 1);
    NAMING_WORDS.iter().any(|word| {
        let start = end.saturating_sub(word.len());
        before[start..end].eq_ignore_ascii_case(word.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[track_caller]
    fn check(answer: &str, name: &str, expected: bool) {
        let now = Instant::now();
        let mut strays = Strays::default();
        strays.note_answer(now, b"{\"content\":[]}");
        strays.note_answer(now, answer.as_bytes());
        let name = Key::read(&Bytes::copy_from_slice(name.as_bytes())).unwrap();
        assert_eq!(strays.contains(&name, Some(now)), expected, "{name} in {answer}");
        assert!(!strays.contains(&name, Some(now + NAMED_MAX)));
    }

    #[test]
    fn names_of_jobs_are_found_in_answers() {
        for (answer, name) in [
            (r#"{"structuredContent":{"jobId":"render-17"}}"#, r#""render-17""#),
            (
                r#"{"content":[{"type":"text","text":"{\"jobId\":\"render-17\"}"}]}"#,
                r#""render-17""#,
            ),
            (r#"{"text":"started\nrender-17."}"#, r#""render-17""#),
            (r#"{"jobId":17}"#, "17"),
            (r#"{"jobId":17}"#, r#""17""#),
            (r#"{"job_id":"17"}"#, "17"),
            (r#"{"text":"Job #17 has started"}"#, "17"),
            (r#"{"text":"{\"taskId\": 7.5}"}"#, "7.5"),
            (r#"{"name":"nightly"}"#, r#""nightly""#),
            (r#"{"text":"{\"name\":\"nightly\"}"}"#, r#""nightly""#),
        ] {
            check(answer, name, true);
        }
    }

    #[test]
    fn counts_and_words_are_no_names() {
        for (answer, name) in [
            (r#"{"text":"render-17"}"#, r#""render-1""#),
            (r#"{"text":"render-17"}"#, r#""17""#),
            (r#"{"text":"17 files"}"#, "17"),
            (r#"{"count":17}"#, "17"),
            (r#"{"jobId":17.5}"#, "17"),
            (r#"{"text":"the build is done"}"#, r#""build""#),
            (r#"{"build":true}"#, r#""build""#),
            (r#"{"text":"anything"}"#, r#""""#),
        ] {
            check(answer, name, false);
        }
    }

    #[test]
    fn the_oldest_text_and_the_oldest_token_are_forgotten() {
        let now = Instant::now();
        let key = |text: String| Key::Text(text.into());
        let mut strays = Strays::default();
        for number in 0..100 {
            let filler = "x".repeat(ANSWER_BYTES_MAX);
            let answer =
                format!("{{\"a\":\"job-{number}\",\"b\":\"{filler}\",\"c\":\"end-{number}\"}}");
            strays.note_answer(now, answer.as_bytes());
            strays.add(&key(format!("t{}", number * STRAYS_MAX)));
            let known = strays.known.as_ref().unwrap();
            assert!(known.text.len() <= ANSWERS_BYTES_MAX);
        }
        for name in ["job-99", "end-99", "job-96"] {
            assert!(strays.contains(&key(name.to_owned()), None), "{name}");
        }
        assert!(!strays.contains(&key("job-9".to_owned()), None));
        for number in 0..STRAYS_MAX {
            strays.add(&key(format!("u{number}")));
        }
        assert!(!strays.contains(&key("t0".to_owned()), None));
        assert!(strays.contains(&key("u0".to_owned()), None));
    }
}
