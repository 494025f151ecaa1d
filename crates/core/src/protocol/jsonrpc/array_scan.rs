//! Finds the answers in an array that is too large to be kept whole.

use bytes::Bytes;
use memchr::memchr2;

use super::scan::Scan;
use super::{Key, Kind};

/// Limit of the answers in one array that are noticed while the array is forwarded. The calls of further answers stay
/// open until their time limits.
pub const ARRAY_ANSWERS_MAX: usize = 1 << 10;

/// A scanner of the elements of an array that arrives in pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct ArrayScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The element that is being read.
    element: Scan,
    answers: Vec<Key>,
}

impl ArrayScan {
    /// Reads the next piece. The first piece begins with the opening bracket.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        let (mut at, mut from) = (0, 0);
        while at < piece.len() {
            // Inside a string only its end matters.
            if self.in_string && !self.escaped {
                match memchr2(b'"', b'\\', &piece[at..]) {
                    Some(offset) => at += offset,
                    None => break,
                }
            }
            match piece[at] {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'[' | b'{' => {
                    if self.depth == 1 {
                        (from, self.element) = (at, Scan::default());
                    }
                    self.depth += 1;
                }
                b']' | b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 1 {
                        self.element.feed(&piece[from..=at]);
                        self.note_answer();
                    }
                }
                _ => {}
            }
            at += 1;
        }
        if self.depth > 1 {
            self.element.feed(&piece[from..]);
        }
    }

    fn note_answer(&mut self) {
        let id = self.element.id().filter(|_| self.element.kind() == Kind::Response);
        self.answers.extend(id.filter(|_| self.answers.len() < ARRAY_ANSWERS_MAX));
    }

    /// Returns the ids of the answers that have been read completely, in order.
    pub(super) fn answers(&self) -> &[Key] {
        &self.answers
    }

    /// Returns a small array with the same answers. Its first message states that `len` bytes are left out.
    pub(super) fn stand_in(&self, len: u64, left_out: &str) -> Bytes {
        let answer = |(at, id): (usize, &Key)| {
            let (id, len) = (id.to_json(), if at == 0 { len } else { 0 });
            let id = String::from_utf8_lossy(&id);
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"{left_out}":{len}}}}}"#)
        };
        let mut messages: Vec<String> = self.answers.iter().enumerate().map(answer).collect();
        if messages.is_empty() {
            messages.push(format!(r#"{{"jsonrpc":"2.0","params":{{"{left_out}":{len}}}}}"#));
        }
        Bytes::from(format!("[{}]", messages.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: &str = r#"[{"jsonrpc":"2.0","id":1,"result":{"a":"]}\"\\"}},
        {"jsonrpc":"2.0","method":"x","id":9},[{"id":4,"result":{}}],{"error":{},"id":"é\""},7]"#;

    #[test]
    fn answers_are_found_wherever_the_text_is_cut() {
        for cut in 0..ARRAY.len() {
            let mut scan = Scan::default();
            scan.feed(&ARRAY.as_bytes()[..cut]);
            scan.feed(&ARRAY.as_bytes()[cut..]);
            let ids: Vec<Vec<u8>> = scan.answers().iter().map(|id| id.to_json().to_vec()).collect();
            assert_eq!(ids, [&b"1"[..], "\"é\\\"\"".as_bytes()], "{cut}");
            assert!(scan.is_whole() && scan.kind() == Kind::Noise);
        }
    }

    #[test]
    fn what_stands_for_an_array_has_its_answers() {
        let mut scan = Scan::default();
        scan.feed(ARRAY.as_bytes());
        let text = scan.stand_in(5000);
        assert!(
            text.starts_with(br#"[{"jsonrpc":"2.0","id":1,"result":{"bytes left out":5000}},"#)
        );
        let mut again = Scan::default();
        again.feed(&text);
        assert_eq!(again.answers(), scan.answers());
    }

    #[test]
    fn answers_beyond_the_limit_are_not_noticed() {
        let mut scan = Scan::default();
        scan.feed(b"[");
        for id in 0..ARRAY_ANSWERS_MAX + 7 {
            scan.feed(format!(r#"{{"id":{id},"result":{{}}}},"#).as_bytes());
        }
        assert_eq!(scan.answers().len(), ARRAY_ANSWERS_MAX);
    }
}
