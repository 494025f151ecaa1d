//! Shortens text for people to one line.

/// Limit of the characters of a message that Milepost writes itself. Claude Code shows no more.
pub(crate) const WORDS_MAX: usize = 200;

/// Returns `text` followed by `tail` on one line of at most [`WORDS_MAX`] characters; `tail` is not shortened.
pub(crate) fn one_line(text: &str, tail: &str) -> String {
    let room = WORDS_MAX.saturating_sub(tail.chars().count());
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = clean.clone().take(room).collect();
    if clean.count() > room {
        line.pop();
        line.push('…');
    }
    line + tail
}
