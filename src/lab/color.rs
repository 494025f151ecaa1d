//! Colours of reports: whether a report has some, and the styles of its parts.

use clap::ValueEnum;
use console::Style;

/// Whether a report has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorChoice {
    /// If standard output is a terminal and NO_COLOR is not set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorChoice {
    /// Returns the styles of a report on standard output.
    pub fn palette(self) -> Palette {
        Palette {
            is_on: match self {
                Self::Auto => console::colors_enabled(),
                Self::Always => true,
                Self::Never => false,
            },
        }
    }
}

/// The styles of a report.
#[derive(Debug, Clone, Copy, Default)]
pub struct Palette {
    is_on: bool,
}

impl Palette {
    fn paint(self, style: Style, text: &str) -> String {
        style.force_styling(self.is_on).apply_to(text).to_string()
    }

    /// Formats a heading.
    pub fn heading(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// Formats a text about a fault.
    pub fn bad(self, text: &str) -> String {
        self.paint(Style::new().red().bold(), text)
    }

    /// Formats a text about a possible fault.
    pub fn doubtful(self, text: &str) -> String {
        self.paint(Style::new().yellow(), text)
    }

    /// Formats a text about a success.
    pub fn good(self, text: &str) -> String {
        self.paint(Style::new().green(), text)
    }

    /// Formats a text of less importance.
    pub fn dim(self, text: &str) -> String {
        self.paint(Style::new().dim(), text)
    }

    /// Formats a text that the user can type.
    pub fn command(self, text: &str) -> String {
        self.paint(Style::new().cyan(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_there_where_they_are_asked_for() {
        assert_eq!(ColorChoice::Never.palette().bad("x"), "x");
        assert_eq!(ColorChoice::Always.palette().good("x"), "\u{1b}[32mx\u{1b}[0m");
    }
}
