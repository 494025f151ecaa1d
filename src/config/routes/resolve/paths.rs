//! Refuses routes with paths on which another route would answer.

use toml::Spanned;

use crate::config::routes::keys::RouteSection;
use crate::config::routes::route::Route;
use crate::policy_file::diagnostics::ConfigError;

/// The path below which clients look for the authorization server (RFC 8615).
const RESERVED: &str = "/.well-known";

/// The paths below a route's path on which the route answers clients of HTTP+SSE.
const OF_SSE: [&str; 2] = ["/sse", "/messages"];

/// Refuses a route whose path is below a reserved path of an earlier route, or the reverse.
pub(super) fn admit(
    table: &RouteSection,
    route: &Route,
    before: &[Route],
) -> Result<(), ConfigError> {
    let span = table.path.as_ref().map_or_else(|| table.span.clone(), Spanned::span);
    let path = &*route.path;
    if is_below(path, RESERVED) {
        let what = format!("{path:?} is reserved for discovery ({RESERVED}); another is expected");
        return Err(ConfigError::new(span, what));
    }
    for other in before {
        let other = &*other.path;
        if path == other {
            let what = format!("a route with the path {path:?} is there already");
            return Err(ConfigError::new(span, what));
        }
        // In both directions, because routes may be in any order in the file.
        for (path, other) in [(path, other), (other, path)] {
            let taken = OF_SSE.iter().find(|end| is_below(path, &format!("{other}{end}")));
            if taken.is_some() {
                let what = format!(
                    "{path:?} is where the route {other:?} answers HTTP+SSE; another path is expected"
                );
                return Err(ConfigError::new(span, what));
            }
        }
    }
    Ok(())
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
