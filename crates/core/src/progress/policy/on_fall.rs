//! How a value that does not rise is repaired.

/// The handling of a value that repeats or falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFall {
    /// The value is set just above the last sent value; a fall with a changed total begins a new phase.
    #[default]
    Lift,
    /// Every fall begins a new phase on top of the last value.
    Rebase,
    /// The report is withheld.
    Drop,
}
