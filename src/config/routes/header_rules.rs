//! `headers` of a route, as read.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use super::bearer_file::BearerFile;

/// The changes of the headers of one direction. Hop-by-hop headers never pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeaderRules {
    /// Headers that are set, whatever they were.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Those of `set` whose value is the token of a file. `set` has the token that the file held at the load.
    pub bearer_files: Vec<(HeaderName, Arc<BearerFile>)>,
    /// Headers that are taken out.
    pub remove: Vec<HeaderName>,
    /// Whether cookies that the upstream sets get the route's path; of responses only.
    pub cookie_path: bool,
}
