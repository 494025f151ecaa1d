//! The responsibility of one filter within a session.

/// What a filter is responsible for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterRole {
    /// Everything: there is no other filter.
    Whole,
    /// One request of a session, or several in one array.
    Request,
    /// What the requests of a session share.
    Session,
}
