//! The styles of `milepost top`.

use console::Style;

/// The styles, with colours or without.
#[derive(Debug, Clone)]
pub(super) struct Styles {
    pub(super) plain: Style,
    pub(super) dim: Style,
    pub(super) bold: Style,
    pub(super) good: Style,
    pub(super) bad: Style,
    pub(super) bar: Style,
    pub(super) removed: Style,
    pub(super) added: Style,
    repaired: Style,
    withheld: Style,
    by_us: Style,
}

/// Whether a terminal shows colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colours {
    Shown,
    /// Texts differ by weight only.
    Off,
}

impl Styles {
    pub(super) fn new(colours: Colours) -> Self {
        let colour = |style: Style| match colours {
            Colours::Shown => style,
            Colours::Off => Style::new(),
        };
        Self {
            dim: Style::new().dim(),
            bold: Style::new().bold(),
            good: colour(Style::new().green()),
            bad: colour(Style::new().red()).bold(),
            bar: colour(Style::new().cyan()),
            removed: colour(Style::new().red()).bold(),
            added: colour(Style::new().green()).bold(),
            repaired: colour(Style::new().yellow()),
            withheld: colour(Style::new().red()),
            by_us: colour(Style::new().cyan()),
            plain: Style::new(),
        }
    }

    /// Returns the style for the verdict on a message.
    pub(super) fn of_verdict(&self, what: &str) -> &Style {
        match what {
            "repaired" => &self.repaired,
            "withheld" => &self.withheld,
            "added" => &self.by_us,
            _ => &self.plain,
        }
    }
}
