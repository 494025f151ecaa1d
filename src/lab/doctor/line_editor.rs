//! Reads a line from a terminal: the arrow keys bring earlier lines back, and TAB completes the first word.

use std::collections::VecDeque;
use std::io;
use std::mem::take;

use console::{Key, Term, measure_text_width};
use tokio::task::spawn_blocking;

use super::findings::shown;
use crate::platform::terminal::RawMode;
use crate::progress::clients::is_unprintable;

/// Maximum number of earlier lines. The oldest are dropped first.
const HISTORY_MAX: usize = 100;

/// Maximum number of bytes in a line. Further characters are ignored.
const LINE_MAX: usize = 64 << 10;

/// Ctrl-D, which ends the input.
const END: char = '\u{4}';

/// Ctrl-U, which removes the line.
const REMOVE: char = '\u{15}';

/// The line that is typed, and the earlier lines.
#[derive(Debug, Default)]
pub(super) struct LineEditor {
    text: String,
    history: VecDeque<String>,
    /// The index in the history of the line that is shown; the length of the history means a new line.
    place: usize,
    /// The unfinished new line, while an earlier line is shown.
    draft: String,
}

/// The effect of a key.
#[derive(Debug, PartialEq, Eq)]
enum LineStep {
    /// The line may have changed.
    Edited,
    /// Several words match.
    Choices(Vec<String>),
    /// The line is complete.
    Entered(String),
    /// The input has ended.
    Ended,
}

/// The raw mode of the terminal, for as long as this lives.
struct RawLine {
    mode: RawMode,
}

impl Drop for RawLine {
    fn drop(&mut self) {
        self.mode.end();
    }
}

impl LineEditor {
    /// Reads a line, whose first word may be completed from `words`. Returns `None` after Ctrl-C, or after Ctrl-D on an
    /// empty line.
    ///
    /// # Errors
    /// If the terminal fails.
    pub(super) async fn ask(
        &mut self,
        prompt: &str,
        words: &[String],
    ) -> io::Result<Option<String>> {
        let (mut editor, prompt, words) = (take(self), prompt.to_owned(), words.to_vec());
        // A thread reads the keys, because the terminal cannot be read asynchronously.
        let reading = spawn_blocking(move || {
            let line = editor.read(&prompt, &words);
            (editor, line)
        });
        let (editor, line) = reading.await.map_err(io::Error::other)?;
        *self = editor;
        line
    }

    fn read(&mut self, prompt: &str, words: &[String]) -> io::Result<Option<String>> {
        let terminal = Term::stdout();
        let _raw = RawLine { mode: RawMode::begin()? };
        terminal.write_str(prompt)?;
        let mut drawn = measure_text_width(prompt);
        loop {
            let step = self.press(&terminal.read_key_raw()?, words);
            let columns = usize::from(terminal.size().1).max(1);
            // If the line fills its last row, the cursor is still on that row.
            terminal.move_cursor_up(drawn.saturating_sub(1) / columns)?;
            let below = match &step {
                LineStep::Choices(choices) => {
                    format!("{prompt}{}\r\n{}\r\n", self.text, shown(choices.join("  ").as_bytes()))
                }
                _ => String::new(),
            };
            let line = format!("{prompt}{}", self.text);
            terminal.write_str("\r")?;
            terminal.clear_to_end_of_screen()?;
            terminal.write_str(&format!("{below}{line}"))?;
            drawn = measure_text_width(&line);
            match step {
                LineStep::Edited | LineStep::Choices(_) => {}
                LineStep::Entered(line) => {
                    terminal.write_str(&format!("{line}\r\n"))?;
                    return Ok(Some(line));
                }
                LineStep::Ended => {
                    terminal.write_str("\r\n")?;
                    return Ok(None);
                }
            }
        }
    }

    /// Handles a key.
    fn press(&mut self, key: &Key, words: &[String]) -> LineStep {
        match key {
            Key::Enter => return LineStep::Entered(self.enter()),
            Key::CtrlC => return LineStep::Ended,
            Key::Char(END) if self.text.is_empty() => return LineStep::Ended,
            Key::Char(REMOVE) => self.text.clear(),
            Key::Backspace => drop(self.text.pop()),
            Key::ArrowUp => self.show_earlier(self.place.saturating_sub(1)),
            Key::ArrowDown => self.show_earlier(self.place + 1),
            Key::Tab => return self.complete(words),
            Key::Char(sign) if !is_unprintable(*sign) && self.text.len() < LINE_MAX => {
                self.text.push(*sign);
            }
            _ => {}
        }
        LineStep::Edited
    }

    /// Returns the line, and keeps it in the history.
    fn enter(&mut self) -> String {
        let line = take(&mut self.text);
        if !line.trim().is_empty() && self.history.back() != Some(&line) {
            self.history.push_back(line.clone());
            if self.history.len() > HISTORY_MAX {
                self.history.pop_front();
            }
        }
        self.place = self.history.len();
        line
    }

    /// Shows the line at an index of the history.
    fn show_earlier(&mut self, place: usize) {
        let place = place.min(self.history.len());
        if place == self.place {
            return;
        }
        if self.place == self.history.len() {
            self.draft = take(&mut self.text);
        }
        self.text = match self.history.get(place) {
            Some(line) => line.clone(),
            None => take(&mut self.draft),
        };
        self.place = place;
    }

    /// Completes the line, as far as all matching words agree.
    fn complete(&mut self, words: &[String]) -> LineStep {
        let fits = |word: &&String| word.starts_with(&self.text);
        let fitting: Vec<&String> = words.iter().filter(fits).collect();
        let Some((first, others)) = fitting.split_first() else { return LineStep::Edited };
        if others.is_empty() {
            self.text = format!("{first} ");
            return LineStep::Edited;
        }
        let agreed = others.iter().fold(first.as_str(), |agreed, word| {
            let both = agreed.char_indices().zip(word.chars());
            let mut differ = both.skip_while(|((_, one), other)| one == other);
            let end = differ.next().map_or_else(|| agreed.len().min(word.len()), |((at, _), _)| at);
            agreed.get(..end).unwrap_or_default()
        });
        if agreed.len() > self.text.len() {
            self.text = agreed.to_owned();
            return LineStep::Edited;
        }
        LineStep::Choices(fitting.into_iter().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(editor: &mut LineEditor, keys: &str, words: &[String]) -> Vec<LineStep> {
        let key = |sign| match sign {
            '\n' => Key::Enter,
            '\t' => Key::Tab,
            '↑' => Key::ArrowUp,
            '↓' => Key::ArrowDown,
            '←' => Key::Backspace,
            sign => Key::Char(sign),
        };
        let steps = keys.chars().map(|sign| editor.press(&key(sign), words));
        steps.filter(|step| *step != LineStep::Edited).collect()
    }

    fn entered(line: &str) -> LineStep {
        LineStep::Entered(line.to_owned())
    }

    #[test]
    fn the_arrows_bring_earlier_lines_back_and_the_new_one_too() {
        let mut editor = LineEditor::default();
        typed(&mut editor, "one\ntwo\ntwo\n", &[]);
        assert_eq!(typed(&mut editor, "↑↑\n", &[]), [entered("one")]);
        assert_eq!(typed(&mut editor, "thr↑↑↓↓↓ee\n", &[]), [entered("three")]);
        assert_eq!(typed(&mut editor, "↑↑↑↑↑↑!←?\n", &[]), [entered("one?")]);
    }

    #[test]
    fn a_tab_completes_a_name_as_far_as_it_is_clear() {
        let words = ["report", "repair", "scan"].map(str::to_owned);
        let mut editor = LineEditor::default();
        assert_eq!(typed(&mut editor, "s\t{}\n", &words), [entered("scan {}")]);
        let choices = LineStep::Choices(vec!["report".to_owned(), "repair".to_owned()]);
        assert_eq!(typed(&mut editor, "r\t\to\t{\t\n", &words), [choices, entered("report {")]);
        assert_eq!(typed(&mut editor, "x\t\n", &words), [entered("x")]);
    }

    #[test]
    fn keys_remove_a_line_and_end_the_input() {
        let mut editor = LineEditor::default();
        assert_eq!(typed(&mut editor, "wrong\u{15}\u{1b}right\u{4}\n", &[]), [entered("right")]);
        assert_eq!(typed(&mut editor, "\u{4}", &[]), [LineStep::Ended]);
        assert_eq!(editor.press(&Key::CtrlC, &[]), LineStep::Ended);
    }
}
