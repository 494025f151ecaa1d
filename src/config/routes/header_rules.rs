//! The changes of a route's headers (`headers` in the file), as read.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use super::bearer_file::BearerFile;

/// The changes of the headers of one direction. Hop-by-hop headers are never forwarded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeaderRules {
    /// Headers that are set, and replace existing values.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// The headers of `set` whose value is a token from a file. `set` has the token that the file contained when the
    /// route file was loaded.
    pub bearer_files: Vec<(HeaderName, Arc<BearerFile>)>,
    /// Headers that are taken out.
    pub remove: Vec<HeaderName>,
    /// Whether cookies that the upstream sets get the route's path; of responses only.
    pub cookie_path: bool,
}
