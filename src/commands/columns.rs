//! Tables of text in columns, for the output of commands.

use crate::progress::clients::is_unprintable;

/// Returns a table: the head, then a line for each of `rows`. The first `left` columns are aligned to the left, the
/// others to the right. Cells must not contain control characters; see [`printable`].
pub(super) fn columns<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    left: usize,
) -> String {
    let lines: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |cells: &[String; N]| {
        let padded = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

/// Replaces each character of a name that could control a terminal or hide other text.
pub(super) fn printable(name: &str) -> String {
    name.replace(is_unprintable, "\u{fffd}")
}

/// Returns the time since an event, in the largest unit that gives at least one.
pub(super) fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..172_800 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}
