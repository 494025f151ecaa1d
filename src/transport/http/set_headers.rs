//! Sets the headers of a route, with the current tokens from files.

use std::time::Instant;

use http::HeaderMap;

use super::headers::is_hop_by_hop;
use crate::config::routes::HeaderRules;
use crate::observe::metrics::{ServerNotice, Traffic};

/// Sets the headers of the rules, replacing existing values. `traffic` counts token files that cannot be used.
pub(crate) fn set_headers(rules: &HeaderRules, traffic: Option<&Traffic>, passed: &mut HeaderMap) {
    for (name, value) in &rules.set {
        // A route cannot set headers that belong to one connection.
        if !is_hop_by_hop(name) {
            passed.insert(name, value.clone());
        }
    }
    for (name, bearer) in &rules.bearer_files {
        let (header, fault) = bearer.header_or_last(Instant::now());
        if let (Some(traffic), Some(_)) = (traffic, &fault) {
            traffic.notice(ServerNotice::TokenFile);
        }
        if let Some(fault) = fault.filter(|fault| fault.is_due) {
            tracing::warn!(
                header = name.as_str(),
                error = fault.why,
                "the file of `bearer_file` cannot be used, and the last good token stays in use: write the token into \
                 the file again"
            );
        }
        // Without a readable token, the token from loading the route file stays, which `set` contains.
        if let Some(header) = header {
            passed.insert(name, header);
        }
    }
}
