//! How a value that does not rise is handled.

/// How a value that repeats or falls is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFall {
    /// The value is set just above the last sent value. A fall together with another total begins a new phase.
    #[default]
    Lift,
    /// Every fall begins a new phase on top of the last value.
    Rebase,
    /// The report is withheld.
    Drop,
}
