//! Text outside the messages: lines on standard error, and lines on standard output that are not messages.

use super::Examiner;
use crate::lab::doctor::content::MessageContent;
use crate::lab::doctor::findings::shown;
use crate::lab::doctor::rules::Rule;
use crate::lab::doctor::traffic::TransportKind;
use crate::protocol::terminal::Terminal;

/// A stream that carries text outside the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextStream {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
}

impl TextStream {
    pub(super) const ALL: [Self; 2] = [Self::Stderr, Self::Stdout];

    /// Returns the rule for lines that show how far a call is.
    pub(super) const fn progress(self) -> Rule {
        match self {
            Self::Stderr => Rule::AsideProgress,
            Self::Stdout => Rule::StdoutProgress,
        }
    }

    /// Returns the rule for other lines.
    pub(super) const fn text(self) -> Rule {
        match self {
            Self::Stderr => Rule::AsideText,
            Self::Stdout => Rule::StdoutText,
        }
    }
}

impl Examiner {
    /// Judges a line of standard output, or an event, that is not a message.
    pub(super) fn noise(&mut self, text: &[u8]) {
        if self.terms.wire != TransportKind::Stdio {
            return self.note(Rule::EventNoise, shown(text));
        }
        self.note(Rule::Noise, shown(text));
        // As in the dialect `stdout`, each state of a line that is redrawn counts as a line.
        let mut terminal = Terminal::default();
        terminal.feed(text, &mut |line| self.line(TextStream::Stdout, line));
        terminal.flush(&mut |line| self.line(TextStream::Stdout, line));
    }

    /// Judges a line that the server has written on `stream`.
    pub(super) fn line(&mut self, stream: TextStream, line: &str) {
        if !self.has_open_call() || !line.chars().any(char::is_alphanumeric) {
            return;
        }
        let figure = self.presets.figure(line);
        let structured = line.trim_start().starts_with('{')
            && ["\"percent", "\"progress"].iter().any(|name| line.contains(name));
        let rule = match structured || figure.is_some() {
            true => stream.progress(),
            false => stream.text(),
        };
        self.note(rule, shown(line.as_bytes()));
        let mut content = MessageContent::default();
        content.add_text(line);
        figure.iter().for_each(|figure| content.add_number(figure.value.value));
        if let Some(found) = self.found.get_mut(&(rule, None)) {
            found.content.extend(content);
        }
        self.texts.of(stream).add(line);
    }
}
