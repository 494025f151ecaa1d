//! Reads a program's output, and returns line by line the text that a terminal would show. Does no I/O.
//!
//! To show a progress bar, programs redraw a line: they return to its start (by a carriage return or a cursor
//! movement), or delete it with backspaces, and write again. Each state of the line counts as a line. If a new state is
//! shorter than the old one, the rest of the old one is not shown, because programs erase the rest or intend to.

use std::str;

use anstyle_parse::state::{Action, State, state_change};

/// Limit of the bytes of a line of terminal text that are read. The rest of the line is skipped. A progress bar of
/// eighty columns has a few hundred bytes.
pub const LINE_MAX: usize = 4 << 10;

/// The size up to which writes into a pipe are not divided (`PIPE_BUF` of Linux). A shorter read therefore ends at the
/// end of a write, so no number is cut there.
const WHOLE_BELOW: usize = 4 << 10;

/// Limit of the parameter of a control sequence. Larger parameters count as this number, because no screen is wider.
const PARAMETER_MAX: usize = 9_999;

/// A reader of one stream of output, which comes in pieces.
#[derive(Debug, Default)]
pub struct Terminal {
    /// The state of the line so far.
    shown: String,
    /// The last state of this line that was reported.
    last: String,
    /// Whether the line has been redrawn.
    redrawn: bool,
    /// Whether the line has a character that does not occur in text.
    binary: bool,
    /// Whether the line is longer than the limit.
    full: bool,
    sequence: Sequence,
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
}

impl Terminal {
    /// Handles the bytes of one read, and reports each complete line. At the end of the read, the newest state of a
    /// line that is being redrawn is reported too, because such a line may never end.
    pub fn feed(&mut self, bytes: &[u8], line: &mut dyn FnMut(&str)) {
        self.decode(bytes, line);
        if self.redrawn && bytes.len() < WHOLE_BELOW {
            self.report(line);
        }
    }

    /// Reports the unfinished line at the end of the input.
    pub fn flush(&mut self, line: &mut dyn FnMut(&str)) {
        // The first bytes of an incomplete character are dropped.
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
                    // The last byte does not belong to this character, but begins another one.
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
            if self.sequence.is_text() && is_plain(words) {
                // Most lines are complete, and contain nothing but text.
                if words.len() < row.len() && self.shown.is_empty() && !self.binary {
                    let words = words.get(..floor(words, LINE_MAX)).unwrap_or_default();
                    if let Some(words) = self.new_text(words) {
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
            CharEffect::Nothing => return,
            CharEffect::Text(text) => return self.put(text),
            CharEffect::Control(control) => control,
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

    /// Begins a new state of the line, because the cursor has moved back to its start.
    fn redraw(&mut self, line: &mut dyn FnMut(&str)) {
        self.report(line);
        self.shown.clear();
        self.binary = false;
        self.full = false;
        self.redrawn = true;
    }

    fn end(&mut self, line: &mut dyn FnMut(&str)) {
        self.report(line);
        self.sequence = Sequence::default();
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
        let Some(words) = self.new_text(&self.shown) else { return };
        line(words);
        self.last = words.to_owned();
    }

    /// Returns the text of a state of the line, if it has to be reported.
    fn new_text<'a>(&self, shown: &'a str) -> Option<&'a str> {
        let words = shown.trim();
        let is_new = !words.is_empty() && !self.binary && words != self.last && !is_rubbish(words);
        is_new.then_some(words)
    }
}

/// Returns the text without terminal control sequences, control characters and characters that change the text
/// direction. Newlines and tabs stay.
pub fn plain(words: &str) -> String {
    if is_plain(words) {
        return words.to_owned();
    }
    let mut sequence = Sequence::default();
    let shown = words.chars().filter_map(|character| {
        let is_text = sequence.is_text();
        match (sequence.step(character), character) {
            (_, '\n') => Some('\n'),
            (_, '\t') if is_text => Some('\t'),
            (CharEffect::Text(text), _) => Some(text),
            _ => None,
        }
    });
    shown.collect()
}

/// Whether a text has no control character, no first byte of a two-byte control character, and no character that
/// changes the text direction. The loop does not stop early, so that the compiler can vectorise it.
fn is_plain(words: &str) -> bool {
    let is_text = |byte: u8| byte >= b' ' && byte != 0x7f && byte != 0xc2;
    // The first bytes of characters that change the text direction. Progress bars and Arabic letters begin with these
    // bytes too.
    let may_turn = |byte: u8| byte == 0xe2 || byte == 0xd8;
    let (is_plain, may_turn) = words.bytes().fold((true, false), |(plain, turns), byte| {
        (plain & is_text(byte), turns | may_turn(byte))
    });
    is_plain && !(may_turn && words.contains(turns_text))
}

/// Whether a character changes the direction of the text around it, so that readers see another order, or ends a line.
fn turns_text(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Whether so many characters of a text are invalid that it must be binary or have another encoding.
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

/// The state of a reader within a control sequence (ECMA-48). The table of states and bytes is that of `anstyle-parse`,
/// whose own parser keeps the text of a window title in memory without a limit.
#[derive(Debug, Clone, Copy, Default)]
struct Sequence {
    state: State,
    /// The first parameter of a CSI sequence.
    first: usize,
    /// Whether another parameter of the CSI sequence follows.
    more: bool,
}

/// The effect of a character on the line.
#[derive(Debug, PartialEq, Eq)]
enum CharEffect {
    Text(char),
    Control(Control),
    Nothing,
}

/// A control function that moves the cursor or makes a line unreadable.
#[derive(Debug, PartialEq, Eq)]
enum Control {
    Newline,
    /// The cursor has moved to the beginning of this line, or to another line.
    Redraw,
    /// The cursor has moved back by this number of characters.
    Back(usize),
    /// The cursor has moved to this column. The first column is 0.
    Column(usize),
    /// The control function does not occur in text.
    Rubbish,
}

impl Sequence {
    fn is_text(self) -> bool {
        self.state == State::Ground
    }

    fn step(&mut self, character: char) -> CharEffect {
        match character {
            // An unterminated sequence must not swallow the text of the next line.
            '\n' | '\u{85}' => {
                self.state = State::Ground;
                CharEffect::Control(Control::Newline)
            }
            // C1 controls that begin or end a sequence. Each stands for ESC and a letter.
            '\u{90}' | '\u{98}' | '\u{9b}'..='\u{9f}' => {
                self.state = State::Escape;
                self.byte(character as u8 - 0x40)
            }
            _ if character.is_ascii() => self.byte(character as u8),
            _ if character.is_control() || turns_text(character) => CharEffect::Nothing,
            _ => match self.state {
                State::Ground => CharEffect::Text(character),
                State::OscString | State::SosPmApcString => CharEffect::Nothing,
                State::DcsEntry | State::DcsParam | State::DcsIntermediate => CharEffect::Nothing,
                State::DcsPassthrough | State::DcsIgnore => CharEffect::Nothing,
                // An unterminated sequence ends where text begins.
                _ => {
                    self.state = State::Ground;
                    CharEffect::Text(character)
                }
            },
        }
    }

    /// Handles an ASCII byte.
    fn byte(&mut self, byte: u8) -> CharEffect {
        let before = self.state;
        let (after, action) = state_change(before, byte);
        if after != State::Anywhere {
            self.state = after;
        }
        if after == State::CsiEntry {
            (self.first, self.more) = (0, false);
        }
        match (action, byte) {
            (Action::Print, b' '..=b'~') => CharEffect::Text(char::from(byte)),
            (Action::Execute, b'\r') => CharEffect::Control(Control::Redraw),
            (Action::Execute, 0x8) => CharEffect::Control(Control::Back(1)),
            (Action::Execute, b'\t') if before == State::Ground => CharEffect::Text(' '),
            (Action::Execute, 0..=6 | 0x10..=0x17 | 0x19 | 0x1c..=0x1f)
                if before == State::Ground =>
            {
                CharEffect::Control(Control::Rubbish)
            }
            (Action::EscDispatch, b'D' | b'E') if before == State::Escape => {
                CharEffect::Control(Control::Newline)
            }
            // The cursor moves up a line or to a saved position, or the terminal is reset.
            (Action::EscDispatch, b'M' | b'8' | b'c') if before == State::Escape => {
                CharEffect::Control(Control::Redraw)
            }
            (Action::Param, b'0'..=b'9') if !self.more => {
                let digit = usize::from(byte - b'0');
                self.first = (self.first * 10 + digit).min(PARAMETER_MAX);
                CharEffect::Nothing
            }
            (Action::Param, b';' | b':') => {
                self.more = true;
                CharEffect::Nothing
            }
            (Action::CsiDispatch, _) => csi(byte, self.first),
            _ => CharEffect::Nothing,
        }
    }
}

/// Returns the effect of a CSI sequence with this last byte and first parameter.
fn csi(end: u8, first: usize) -> CharEffect {
    match end {
        // The cursor moves to another line, or to a position on the screen.
        b'A' | b'B' | b'E' | b'F' | b'H' | b'f' | b'd' | b'u' | b'S' | b'T' => {
            CharEffect::Control(Control::Redraw)
        }
        // The whole line or screen is erased, not only the part after the cursor.
        b'K' | b'J' if first > 0 => CharEffect::Control(Control::Redraw),
        b'G' | b'`' if first <= 1 => CharEffect::Control(Control::Redraw),
        b'G' | b'`' => CharEffect::Control(Control::Column(first - 1)),
        b'D' => CharEffect::Control(Control::Back(first.max(1))),
        b'C' | b'a' => CharEffect::Text(' '),
        _ => CharEffect::Nothing,
    }
}
