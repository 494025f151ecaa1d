//! The text that a terminal would show of a program's output, line by line. Sans-IO.
//!
//! Programs redraw a line to show a bar: they go back to its beginning (a carriage return, a cursor
//! movement) or over it (backspaces) and write again. Each state of such a line counts as a line.
//! The rest of a longer state behind a shorter one is not shown: programs erase the rest, or intend
//! to.

use std::str;

/// Bytes of a line of terminal text that are read. The rest of the line is skipped. A progress bar
/// of eighty columns has a few hundred bytes.
pub const LINE_MAX: usize = 4 << 10;

/// Writes into a pipe are whole up to this size (`PIPE_BUF` of Linux). So a read of less came to the
/// end of what was written: no number in it is cut in two.
const WHOLE_BELOW: usize = 4 << 10;

/// The largest parameter of a control sequence. Larger parameters count as this number; no screen
/// is wider.
const PARAMETER_MAX: usize = 9_999;

/// A reader of one stream of output, fed as it comes.
#[derive(Debug, Default)]
pub struct Terminal {
    /// The state of the line as far as it is written.
    shown: String,
    /// The last state that was reported of this line.
    last: String,
    /// The line is one that is redrawn.
    redrawn: bool,
    /// Something is in it that no text has.
    binary: bool,
    /// The line is longer than the limit.
    full: bool,
    sequence: Sequence,
    /// The beginning of a character that is not whole.
    partial: Vec<u8>,
}

impl Terminal {
    /// Takes what one read gave, and reports each line that has come to its end. A line that is being
    /// redrawn need not end: its newest state is reported too, once nothing more is to be read.
    pub fn feed(&mut self, bytes: &[u8], line: &mut dyn FnMut(&str)) {
        self.decode(bytes, line);
        if self.redrawn && bytes.len() < WHOLE_BELOW {
            self.report(line);
        }
    }

    /// Reports what has come without an end: nothing more will come.
    pub fn flush(&mut self, line: &mut dyn FnMut(&str)) {
        self.partial.clear();
        self.end(line);
        *self = Self::default();
    }

    fn decode(&mut self, mut bytes: &[u8], line: &mut dyn FnMut(&str)) {
        while let Some((&next, rest)) = bytes.split_first()
            && !self.partial.is_empty()
        {
            self.partial.push(next);
            let mut partial = std::mem::take(&mut self.partial);
            match str::from_utf8(&partial) {
                Ok(character) => self.show(character, line),
                Err(error) if error.error_len().is_none() => {
                    self.partial.append(&mut partial);
                }
                Err(_) => {
                    // The last byte begins something else.
                    self.step(char::REPLACEMENT_CHARACTER, line);
                    continue;
                }
            }
            bytes = rest;
        }
        while !bytes.is_empty() {
            match str::from_utf8(bytes) {
                Ok(text) => {
                    self.show(text, line);
                    break;
                }
                Err(error) => {
                    let (valid, rest) = bytes.split_at(error.valid_up_to());
                    self.show(str::from_utf8(valid).unwrap_or_default(), line);
                    let Some(bad) = error.error_len() else {
                        self.partial.extend_from_slice(rest);
                        break;
                    };
                    self.step(char::REPLACEMENT_CHARACTER, line);
                    bytes = rest.get(bad..).unwrap_or_default();
                }
            }
        }
    }

    fn show(&mut self, mut text: &str, line: &mut dyn FnMut(&str)) {
        while !text.is_empty() {
            let length = memchr::memchr(b'\n', text.as_bytes()).map_or(text.len(), |at| at + 1);
            let (row, rest) = text.split_at(length);
            text = rest;
            let words = row.strip_suffix('\n').unwrap_or(row);
            if self.sequence == Sequence::Text && is_plain(words) {
                // Most lines: whole, and nothing to be read but text.
                if words.len() < row.len() && self.shown.is_empty() && !self.binary {
                    let words = words.get(..floor(words, LINE_MAX)).unwrap_or_default();
                    if let Some(words) = self.news(words) {
                        line(words);
                    }
                    self.next_row();
                    continue;
                }
                self.push(words);
            } else {
                words.chars().for_each(|character| self.step(character, line));
            }
            if words.len() < row.len() {
                self.end(line);
            }
        }
    }

    fn step(&mut self, character: char, line: &mut dyn FnMut(&str)) {
        let control = match self.sequence.step(character) {
            Step::Nothing => return,
            Step::Text(text) => return self.put(text),
            Step::Control(control) => control,
        };
        match control {
            Control::Newline => self.end(line),
            Control::Redraw => self.redraw(line),
            Control::Back(count) => {
                self.redrawn = true;
                let kept = self.shown.char_indices().rev().take(count).last();
                self.shown.truncate(kept.map_or(self.shown.len(), |(at, _)| at));
            }
            Control::Column(column) => match self.shown.char_indices().nth(column) {
                Some((at, _)) => {
                    self.redrawn = true;
                    self.shown.truncate(at);
                }
                None => self.put(' '),
            },
            Control::Rubbish => self.binary = true,
        }
    }

    fn put(&mut self, character: char) {
        self.push(character.encode_utf8(&mut [0; 4]));
    }

    fn push(&mut self, words: &str) {
        if self.full {
            return;
        }
        let end = floor(words, LINE_MAX.saturating_sub(self.shown.len()));
        self.full = end < words.len();
        self.shown.push_str(words.get(..end).unwrap_or_default());
    }

    /// The cursor goes to where this state of the line began.
    fn redraw(&mut self, line: &mut dyn FnMut(&str)) {
        self.report(line);
        self.shown.clear();
        self.binary = false;
        self.full = false;
        self.redrawn = true;
    }

    fn end(&mut self, line: &mut dyn FnMut(&str)) {
        self.report(line);
        self.sequence = Sequence::Text;
        self.next_row();
    }

    fn next_row(&mut self) {
        self.shown.clear();
        self.last.clear();
        self.redrawn = false;
        self.binary = false;
        self.full = false;
    }

    fn report(&mut self, line: &mut dyn FnMut(&str)) {
        let Some(words) = self.news(&self.shown) else { return };
        line(words);
        self.last = words.to_owned();
    }

    /// The text to report of a state of the line.
    fn news<'a>(&self, shown: &'a str) -> Option<&'a str> {
        let words = shown.trim();
        let is_news = !words.is_empty() && !self.binary && words != self.last && !is_rubbish(words);
        is_news.then_some(words)
    }
}

/// The words without terminal control sequences and control characters, but for newlines and tabs.
pub fn plain(words: &str) -> String {
    let mut sequence = Sequence::default();
    let shown = words.chars().filter_map(|character| {
        let is_text = sequence == Sequence::Text;
        match (sequence.step(character), character) {
            (_, '\n') => Some('\n'),
            (_, '\t') if is_text => Some('\t'),
            (Step::Text(text), _) => Some(text),
            _ => None,
        }
    });
    shown.collect()
}

/// Whether this is nothing but text: no control character, and no beginning of one of two bytes. Reads
/// to the end, which compilers make many bytes at a time.
fn is_plain(words: &str) -> bool {
    let is_text = |byte: u8| byte >= b' ' && byte != 0x7f && byte != 0xc2;
    words.bytes().fold(true, |plain, byte| plain & is_text(byte))
}

/// Whether so much of it could not be read that it is another encoding, or none.
fn is_rubbish(words: &str) -> bool {
    if words.is_ascii() {
        return false;
    }
    let bad = words.matches(char::REPLACEMENT_CHARACTER).count();
    bad > 0 && bad * 4 > words.chars().count()
}

fn floor(words: &str, most: usize) -> usize {
    if words.len() <= most {
        return words.len();
    }
    (0..=most).rev().find(|&at| words.is_char_boundary(at)).unwrap_or(0)
}

/// The position of a reader in a control sequence (ECMA-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sequence {
    #[default]
    Text,
    /// Behind ESC.
    Escape,
    /// Behind ESC and intermediates, such as `ESC (`.
    Intermediate,
    /// CSI: the first parameter, and whether a second one follows.
    Csi { first: usize, more: bool },
    /// A string up to ST; that of OSC also up to BEL.
    String { osc: bool },
    /// Behind ESC in such a string.
    StringEscape { osc: bool },
}

/// The meaning of a character.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Text(char),
    Control(Control),
    Nothing,
}

/// A control function that moves the cursor or spoils a line.
#[derive(Debug, PartialEq, Eq)]
enum Control {
    Newline,
    /// To the beginning of this line, or to another one.
    Redraw,
    /// The cursor moves back by a number of characters.
    Back(usize),
    /// To a column, the first being 0.
    Column(usize),
    /// No text has this.
    Rubbish,
}

impl Sequence {
    fn step(&mut self, character: char) -> Step {
        match (*self, character) {
            // A sequence that has no end does not swallow what follows.
            (_, '\n' | '\u{85}') => {
                *self = Self::Text;
                Step::Control(Control::Newline)
            }
            (_, '\u{18}' | '\u{1a}') => {
                *self = Self::Text;
                Step::Nothing
            }
            (Self::Text, _) => self.text(character),
            (Self::Escape, _) => self.escape(character),
            (Self::Intermediate, ' '..='/') => Step::Nothing,
            (Self::Intermediate, _) => {
                *self = Self::Text;
                Step::Nothing
            }
            (Self::Csi { first, more }, _) => self.csi(character, first, more),
            (Self::String { osc: true }, '\u{7}') | (Self::String { .. }, '\u{9c}') => {
                *self = Self::Text;
                Step::Nothing
            }
            (Self::String { osc }, '\u{1b}') => {
                *self = Self::StringEscape { osc };
                Step::Nothing
            }
            (Self::String { .. }, _) => Step::Nothing,
            (Self::StringEscape { .. }, '\\') => {
                *self = Self::Text;
                Step::Nothing
            }
            // Another sequence ends the string, too.
            (Self::StringEscape { .. }, _) => self.escape(character),
        }
    }

    fn text(&mut self, character: char) -> Step {
        match character {
            '\r' => Step::Control(Control::Redraw),
            '\u{8}' => Step::Control(Control::Back(1)),
            '\t' => Step::Text(' '),
            '\u{1b}' => {
                *self = Self::Escape;
                Step::Nothing
            }
            '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => {
                *self = Self::String { osc: false };
                Step::Nothing
            }
            '\u{9d}' => {
                *self = Self::String { osc: true };
                Step::Nothing
            }
            '\u{9b}' => {
                *self = Self::Csi { first: 0, more: false };
                Step::Nothing
            }
            '\0'..='\u{6}' | '\u{10}'..='\u{17}' | '\u{19}' | '\u{1c}'..='\u{1f}' => {
                Step::Control(Control::Rubbish)
            }
            character if character.is_control() => Step::Nothing,
            character => Step::Text(character),
        }
    }

    fn escape(&mut self, character: char) -> Step {
        *self = match character {
            '[' => Self::Csi { first: 0, more: false },
            ']' => Self::String { osc: true },
            'P' | 'X' | '^' | '_' => Self::String { osc: false },
            '\u{1b}' => Self::Escape,
            ' '..='/' => Self::Intermediate,
            _ => Self::Text,
        };
        match character {
            'D' | 'E' => Step::Control(Control::Newline),
            // Up a line, back to where the cursor was saved, all anew.
            'M' | '8' | 'c' => Step::Control(Control::Redraw),
            _ => Step::Nothing,
        }
    }

    fn csi(&mut self, character: char, first: usize, more: bool) -> Step {
        match character {
            '0'..='9' => {
                let digit = character.to_digit(10).unwrap_or(0) as usize;
                let first = if more { first } else { (first * 10 + digit).min(PARAMETER_MAX) };
                *self = Self::Csi { first, more };
                Step::Nothing
            }
            ';' | ':' => {
                *self = Self::Csi { first, more: true };
                Step::Nothing
            }
            ' '..='?' => Step::Nothing,
            '\u{1b}' => {
                *self = Self::Escape;
                Step::Nothing
            }
            '@'..='~' => {
                *self = Self::Text;
                match character {
                    // To another line, or to a place of the screen.
                    'A' | 'B' | 'E' | 'F' | 'H' | 'f' | 'd' | 'u' | 'S' | 'T' => {
                        Step::Control(Control::Redraw)
                    }
                    // The line or the screen is erased, not only what is right of the cursor.
                    'K' | 'J' if first > 0 => Step::Control(Control::Redraw),
                    'G' | '`' if first <= 1 => Step::Control(Control::Redraw),
                    'G' | '`' => Step::Control(Control::Column(first - 1)),
                    'D' => Step::Control(Control::Back(first.max(1))),
                    'C' | 'a' => Step::Text(' '),
                    _ => Step::Nothing,
                }
            }
            // Controls do what they do inside a sequence as well; other text ends it.
            '\r' => Step::Control(Control::Redraw),
            '\u{8}' => Step::Control(Control::Back(1)),
            character if character.is_control() => Step::Nothing,
            character => {
                *self = Self::Text;
                Step::Text(character)
            }
        }
    }
}
