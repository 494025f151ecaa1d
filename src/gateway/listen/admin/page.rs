//! The live page: one file without data, which requests all its data from `/calls`.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use crate::observe::transcript::words;
use crate::progress::{Reason, Repair};

// One file, written by hand. There is no build step, and nothing is loaded from another site, so the policy is known
// when the program starts. Rows are keyed by the number of a call and changed in place, once per frame; rows outside
// the view need no layout (`content-visibility`). Names never become markup, because the policy forbids to create
// markup from text (`require-trusted-types-for`).
/// The page, and the policy for browsers: run only the scripts of the page, send requests only to this listener, and
/// never create markup from text (`require-trusted-types-for`). The page contains its icon.
static PAGE: LazyLock<(Bytes, Option<HeaderValue>)> = LazyLock::new(|| {
    let text = include_str!("page.html").replacen(PLACE, &format!("const NAMES = {};", names()), 1);
    let policy = policy(&text).and_then(|policy| HeaderValue::try_from(policy).ok());
    (Bytes::from(text), policy)
});

/// The place in the page where the meanings of names are inserted.
const PLACE: &str = "const NAMES = {};";

/// Returns the meanings of the names that the page shows, by kind.
fn names() -> Value {
    let repaired: Map<_, _> = Repair::ALL
        .map(|repair| (repair.name().to_owned(), words::repair_text(repair).into()))
        .into_iter()
        .collect();
    let withheld: Map<_, _> = Reason::ALL
        .map(|reason| (reason.name().to_owned(), words::reason_text(reason).into()))
        .into_iter()
        .collect();
    json!({
        "repaired": repaired,
        "withheld": withheld,
        "added": { "heartbeat": words::BEAT, "text": words::FROM_TEXT },
    })
}

fn policy(text: &str) -> Option<String> {
    let script = source(text, "<script>", "</script>")?;
    let style = source(text, "<style>", "</style>")?;
    Some(format!(
        "default-src 'none'; connect-src 'self'; img-src data:; script-src {script}; \
         style-src {style}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    ))
}

pub(super) fn text() -> Bytes {
    PAGE.0.clone()
}

/// Returns the policy source (a hash) of the text between two tags.
fn source(text: &str, from: &str, to: &str) -> Option<String> {
    let (_, rest) = text.split_once(from)?;
    let (inner, _) = rest.split_once(to)?;
    Some(format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, inner.as_bytes()))))
}

/// Returns the headers of the page.
pub(super) fn headers() -> HeaderMap {
    let fixed: [(HeaderName, &'static str); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let fixed = fixed.map(|(name, value)| (name, HeaderValue::from_static(value)));
    // A page without its policy is not shown; a test checks that there is a policy.
    let closed = || HeaderValue::from_static("default-src 'none'");
    let policy = PAGE.1.clone().unwrap_or_else(closed);
    fixed.into_iter().chain([(CONTENT_SECURITY_POLICY, policy)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = include_str!("page.html");

    #[test]
    fn the_policy_names_what_is_in_the_page() {
        let headers = headers();
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; connect-src 'self';"), "{policy}");
        assert_eq!(policy.matches("'sha256-").count(), 2, "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for tag in ["<script", "</script>", "<style", "</style>"] {
            assert_eq!(SOURCE.matches(tag).count(), 1, "{tag}");
        }
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_makes_no_markup_of_text() {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            " style=\"",
            " onclick=\"",
            "src=",
            "@import",
            "url(",
            "https:",
        ] {
            assert!(!SOURCE.contains(word), "{word}");
        }
        assert!(SOURCE.len() < 66 << 10, "{} bytes", SOURCE.len());
    }

    #[test]
    fn the_page_has_words_for_every_name() {
        let text = text();
        let text = std::str::from_utf8(&text).unwrap();
        assert!(!text.contains(PLACE) && SOURCE.matches(PLACE).count() == 1);
        let (_, names) = text.split_once("const NAMES = ").unwrap();
        let (names, _) = names.split_once(";\n").unwrap();
        assert!(!names.contains('<'), "{names}");
        let names: Value = serde_json::from_str(names).unwrap();
        for name in Repair::ALL.map(Repair::name) {
            assert!(names["repaired"][name].is_string(), "{name}");
        }
        for name in Reason::ALL.map(Reason::name) {
            assert!(names["withheld"][name].is_string(), "{name}");
        }
    }
}
