//! Every dialect of the product, and some that a route file describes.

use std::path::Path;
use std::sync::LazyLock;

use milepost::config::routes::{Environment, Routes};
use milepost::progress::dialect::{self, Dialect};

/// Every dialect that is built in, and one that a route file may describe.
pub(crate) fn dialects() -> Vec<Dialect> {
    static ALL: LazyLock<Vec<Dialect>> = LazyLock::new(read_dialects);
    ALL.clone()
}

fn read_dialects() -> Vec<Dialect> {
    let text = r#"
        [[dialect]]
        name = "acme"
        method = "acme/status"
        request_id = "/params/id"
        token = "/params/job"
        progress = "/params/pct"
        message = "/params/text"
        final = { pointer = "/params/text#/state", equals = "done" }
        scale = "percent"

        [[dialect]]
        name = "pipeline"
        source = ["stderr", "log"]
        progress = "/job/pct"
        message = "/job/text"
    "#;
    let routes = Routes::parse(Path::new(""), text, &Environment::default()).unwrap();
    dialect::ALL.iter().chain(routes.dialects()).cloned().collect()
}
