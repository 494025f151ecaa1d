//! The terminal that `milepost top` draws on.

use std::fmt::Write;
use std::sync::Arc;
use std::{io, panic};

use console::Term;

use super::lines::TopLine;
use crate::platform::terminal::RawMode;

/// Switches to the terminal's alternate screen and hides the cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";

/// Restores the original screen and the cursor.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

/// The alternate screen of the terminal; dropping the value restores the original screen.
#[derive(Debug)]
pub(super) struct TopTerminal {
    output: Term,
    mode: Arc<RawMode>,
    size: (u16, u16),
    /// The lines on the screen.
    shown: Vec<String>,
}

impl TopTerminal {
    /// Begins to draw. A panic restores the terminal before it prints its message.
    pub(super) fn begin() -> io::Result<Self> {
        let mode = Arc::new(RawMode::begin()?);
        let (report, of_hook) = (panic::take_hook(), Arc::clone(&mode));
        panic::set_hook(Box::new(move |panic| {
            leave(&Term::stdout(), &of_hook);
            report(panic);
        }));
        let output = Term::stdout();
        let terminal = Self { output, mode, size: (0, 0), shown: Vec::new() };
        terminal.output.write_str(ENTER)?;
        Ok(terminal)
    }

    /// Returns the number of columns and lines of the screen.
    pub(super) fn size(&self) -> (usize, usize) {
        let (height, width) = self.output.size();
        (width.into(), height.into())
    }

    /// Shows these lines. Only changed lines are written.
    pub(super) fn show(&mut self, lines: &[TopLine]) -> io::Result<()> {
        let mut text = String::new();
        let size = self.output.size();
        if size != self.size {
            self.size = size;
            self.shown.clear();
            text += "\u{1b}[2J";
        }
        let lines: Vec<String> = lines.iter().map(TopLine::painted).collect();
        for (at, line) in lines.iter().enumerate() {
            if self.shown.get(at) != Some(line) {
                // The line is erased before it is written: after a full line the cursor is still on its last column.
                let _ = write!(text, "\u{1b}[{};1H\u{1b}[2K{line}", at + 1);
            }
        }
        self.shown = lines;
        if text.is_empty() { Ok(()) } else { self.output.write_str(&text) }
    }
}

impl Drop for TopTerminal {
    fn drop(&mut self) {
        leave(&self.output, &self.mode);
    }
}

fn leave(output: &Term, mode: &RawMode) {
    // Ignore the error: the terminal is already closed.
    let _ = output.write_str(LEAVE);
    mode.end();
}
