//! The metadata of a sign-in behind a front that rewrites paths: the URLs that a client compares with the
//! URL that it uses (RFC 9728).

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue};
use tokio::time::timeout;
use url::Url;

use super::client::UpstreamBody;
use super::endpoints::PROTECTED_RESOURCE;
use crate::protocol::json;

/// The longest document about a protected resource that is read, in bytes. Real documents have about 1 KB.
const METADATA_MAX: usize = 256 << 10;

/// The longest time of reading such a document.
const METADATA_TIME: Duration = Duration::from_secs(30);

/// The parameter of a challenge that names the document.
const PARAMETER: &str = "resource_metadata=\"";

/// A public URL without the slash at its end.
fn plain(public: &Url) -> &str {
    public.as_str().trim_end_matches('/')
}

/// Lets the challenges of a response name the document below the public URL: there a front that rewrites
/// paths leads to the route.
pub(crate) fn rewrite_challenges(headers: &mut HeaderMap, public: &Url) {
    for (_, value) in headers.iter_mut().filter(|(name, _)| **name == WWW_AUTHENTICATE) {
        if let Some(new) = rewritten(value, public) {
            *value = new;
        }
    }
}

fn rewritten(challenge: &HeaderValue, public: &Url) -> Option<HeaderValue> {
    let text = challenge.to_str().ok()?;
    let start = text.find(PARAMETER)? + PARAMETER.len();
    let end = start + text.get(start..)?.find('"')?;
    let (before, after) = (&text[..start], &text[end..]);
    let named = format!("{}/.well-known/{PROTECTED_RESOURCE}", plain(public));
    HeaderValue::try_from([before, &named, after].concat()).ok()
}

/// Reads a document; `None` if the document is too long, breaks off, or does not arrive in time.
pub(crate) async fn read_document(mut body: UpstreamBody) -> Option<Bytes> {
    let read = async {
        let mut document = Vec::new();
        while let Some(piece) = poll_fn(|cx| body.poll_data(cx)).await {
            document.extend_from_slice(&piece.ok()?);
            if document.len() > METADATA_MAX {
                return None;
            }
        }
        Some(document.into())
    };
    timeout(METADATA_TIME, read).await.ok().flatten()
}

/// The document with the public URL as its `resource`; `None` if the document has no such member.
pub(crate) fn with_public_resource(document: &Bytes, public: &Url) -> Option<Bytes> {
    let is_resource =
        |member: &json::Member| json::key_is(&document[member.key.clone()], "resource");
    let named = json::Members::new(document).filter(is_resource).last()?.value;
    let url = json::quote(plain(public));
    let parts = [&document[..named.start], &url[..], &document[named.end..]];
    Some(Bytes::from(parts.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public() -> Url {
        "https://front.example/mcp/tools/".parse().unwrap()
    }

    #[test]
    fn a_challenge_names_the_document_below_the_public_url() {
        let named = "https://front.example/mcp/tools/.well-known/oauth-protected-resource";
        for (challenge, expected) in [
            (
                "Bearer resource_metadata=\"https://up/x\"",
                Some(format!("Bearer resource_metadata=\"{named}\"")),
            ),
            (
                "Bearer error=\"e\", resource_metadata=\"\", scope=\"s\"",
                Some(format!("Bearer error=\"e\", resource_metadata=\"{named}\", scope=\"s\"")),
            ),
            ("Bearer resource_metadata=\"https://up/x", None),
            ("Basic realm=\"x\"", None),
        ] {
            let found = rewritten(&HeaderValue::from_static(challenge), &public());
            assert_eq!(found.map(|value| value.to_str().unwrap().to_owned()), expected);
        }
    }

    #[test]
    fn a_document_names_the_public_url_and_keeps_all_else() {
        let with = |text: &'static str| {
            let found = with_public_resource(&Bytes::from_static(text.as_bytes()), &public());
            found.map(|text| String::from_utf8(text.to_vec()).unwrap())
        };
        let expected = r#"{ "resource" : "https://front.example/mcp/tools", "a":[1] }"#;
        assert_eq!(
            with(r#"{ "resource" : "https://up/mcp", "a":[1] }"#).as_deref(),
            Some(expected)
        );
        assert_eq!(with(r#"{"a":{"resource":1}}"#), None);
        assert_eq!(with("no JSON"), None);
    }
}
