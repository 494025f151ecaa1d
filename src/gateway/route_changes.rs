//! The routes that a reload of the route file has changed.

/// Maximum number of routes of one kind that a log line names.
const NAMED_MAX: usize = 10;

/// The paths of the added, removed and changed routes of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The new routes.
    pub added: Vec<String>,
    /// The removed routes.
    pub removed: Vec<String>,
    /// The routes with other settings or another server.
    pub changed: Vec<String>,
    /// Those of the changed routes that have another server.
    pub moved: Vec<String>,
    /// The number of unchanged routes.
    pub unchanged: usize,
}

/// Returns the paths for a log line, the first ten of them; `None` if there are none.
pub fn listed(paths: &[String]) -> Option<String> {
    let shown = paths.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match paths.len().checked_sub(NAMED_MAX) {
        _ if paths.is_empty() => None,
        None | Some(0) => Some(shown),
        Some(more) => Some(format!("{shown} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_routes_are_counted_and_not_named() {
        let paths = |count: usize| (0..count).map(|at| format!("/{at}")).collect::<Vec<_>>();
        assert_eq!(listed(&paths(0)), None);
        assert_eq!(listed(&paths(2)).as_deref(), Some("/0, /1"));
        assert_eq!(listed(&paths(10)).as_deref(), Some("/0, /1, /2, /3, /4, /5, /6, /7, /8, /9"));
        let many = listed(&paths(13)).unwrap();
        assert!(many.ends_with("/8, /9 and 3 more"), "{many}");
    }
}
