//! The styles of `milepost top`.

use ratatui::style::{Color, Modifier, Style};

/// The styles, with colours or without.
#[derive(Debug, Clone, Copy)]
pub(super) struct Styles {
    pub(super) plain: Style,
    pub(super) dim: Style,
    pub(super) bold: Style,
    pub(super) chosen: Style,
    pub(super) good: Style,
    pub(super) bad: Style,
    pub(super) bar: Style,
    pub(super) removed: Style,
    pub(super) added: Style,
    repaired: Style,
    withheld: Style,
    by_us: Style,
}

impl Styles {
    /// The styles; without colours they differ by weight only.
    pub(super) fn new(has_colours: bool) -> Self {
        let plain = Style::new();
        let colour = |colour: Color| if has_colours { plain.fg(colour) } else { plain };
        Self {
            plain,
            dim: plain.add_modifier(Modifier::DIM),
            bold: plain.add_modifier(Modifier::BOLD),
            chosen: plain.add_modifier(Modifier::REVERSED),
            good: colour(Color::Green),
            bad: colour(Color::Red).add_modifier(Modifier::BOLD),
            bar: colour(Color::Cyan),
            removed: colour(Color::Red).add_modifier(Modifier::BOLD),
            added: colour(Color::Green).add_modifier(Modifier::BOLD),
            repaired: colour(Color::Yellow),
            withheld: colour(Color::Red),
            by_us: colour(Color::Cyan),
        }
    }

    /// The style of the verdict on a message.
    pub(super) fn of_verdict(&self, what: &str) -> Style {
        match what {
            "repaired" => self.repaired,
            "withheld" => self.withheld,
            "added" => self.by_us,
            _ => self.plain,
        }
    }
}
