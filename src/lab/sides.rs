//! Formats the two sides of a conversation (what the server sends, and what the client gets) as lines, for `milepost
//! try` and `milepost replay --watch`.

use std::time::Duration;

use crate::lab::color::Palette;

/// The remark on a message that the server did not send.
pub(super) const ADDED: &str = "added by Milepost";

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SideRow {
    /// The client sends a message.
    Asked,
    /// The server sends a message.
    Sent,
    /// The client gets a message.
    Got,
    /// A remark on a message, such as the verdict.
    Remark,
}

/// Formats a line with its time, without a line break. `text` must not have characters that move the cursor.
pub(super) fn side_line(at: Duration, row: SideRow, text: &str, colors: Palette) -> String {
    let at = at.as_secs_f64();
    let (label, text) = match row {
        SideRow::Asked => ("client sends".to_owned(), text.to_owned()),
        SideRow::Sent => ("server sends".to_owned(), text.to_owned()),
        SideRow::Got => (colors.good("client gets "), text.to_owned()),
        SideRow::Remark => (" ".repeat(12), colors.dim(text)),
    };
    format!("{at:8.2} s  {label}  {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stand_in_one_column_on_both_sides() {
        let at = Duration::from_millis(12340);
        let line = |row| side_line(at, row, "{}", Palette::default());
        assert_eq!(line(SideRow::Asked), "   12.34 s  client sends  {}");
        assert_eq!(line(SideRow::Sent), "   12.34 s  server sends  {}");
        assert_eq!(line(SideRow::Got), "   12.34 s  client gets   {}");
        assert_eq!(line(SideRow::Remark), "   12.34 s                {}");
    }
}
