//! Rewrites the metadata of a sign-in for a front that rewrites paths: a client compares the URLs in it with the URL
//! that it uses (RFC 9728).

use std::future::poll_fn;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue};
use tokio::time::timeout;
use url::Url;

use super::client::UpstreamBody;
use super::endpoints::PROTECTED_RESOURCE;
use crate::protocol::json;

/// Limit of the bytes of a document about a protected resource. Real documents have about 1 KB.
const METADATA_MAX: usize = 256 << 10;

/// Deadline for reading a document about a protected resource.
const METADATA_TIME: Duration = Duration::from_secs(30);

/// The parameter of a challenge that names the document about a protected resource.
const PARAMETER: &str = "resource_metadata";

/// Returns a public URL without a final slash.
fn plain(public: &Url) -> &str {
    public.as_str().trim_end_matches('/')
}

/// Changes the challenges of a response so that they name the document below the public URL, where a front that
/// rewrites paths leads to the route.
pub(crate) fn rewrite_challenges(headers: &mut HeaderMap, public: &Url) {
    for (_, value) in headers.iter_mut().filter(|(name, _)| **name == WWW_AUTHENTICATE) {
        if let Some(new) = rewritten(value, public) {
            *value = new;
        }
    }
}

fn rewritten(challenge: &HeaderValue, public: &Url) -> Option<HeaderValue> {
    let text = challenge.to_str().ok()?;
    let named = format!("\"{}/.well-known/{PROTECTED_RESOURCE}\"", plain(public));
    let mut new = String::new();
    let mut copied = 0;
    for value in parameter_values(text, PARAMETER) {
        new.push_str(&text[copied..value.start]);
        new.push_str(&named);
        copied = value.end;
    }
    new.push_str(&text[copied..]);
    // Without the parameter, the header is left unchanged.
    (copied > 0).then(|| HeaderValue::try_from(new).ok())?
}

/// Finds the values of a parameter in the challenges of one header (RFC 9110, section 11.2): a token or a quoted
/// string, including its quotes. Servers also write URLs without quotes: such a value ends at a comma, a space or a
/// semicolon. A quoted string without an end is not found.
fn parameter_values(text: &str, name: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut values = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        if byte == b'"' {
            // A quoted string may contain text that looks like a parameter, so it is skipped as a whole.
            let Some(end) = quoted_end(bytes, at) else { break };
            at = end;
        } else if is_token(byte) {
            at += count(&bytes[at..], is_token);
            let is_named = text[start..at].eq_ignore_ascii_case(name);
            if let Some(value) = parameter_value(bytes, at).filter(|_| is_named) {
                at = value.end;
                values.push(value);
            }
        } else {
            at += 1;
        }
    }
    values
}

/// Returns the range of the value of a parameter whose name ends here.
fn parameter_value(bytes: &[u8], name_end: usize) -> Option<Range<usize>> {
    let is_space = |byte| matches!(byte, b' ' | b'\t');
    let equals = name_end + count(&bytes[name_end..], is_space);
    bytes.get(equals).filter(|&&byte| byte == b'=')?;
    let start = equals + 1 + count(&bytes[equals + 1..], is_space);
    let end = match bytes.get(start) {
        Some(b'"') => quoted_end(bytes, start)?,
        _ => start + count(&bytes[start..], |byte| !matches!(byte, b',' | b';' | b' ' | b'\t')),
    };
    Some(start..end)
}

/// Returns the end of the quoted string that begins here.
fn quoted_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            // The byte after a backslash never ends the string (RFC 9110, 5.6.4).
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns how many bytes at the beginning match.
fn count(bytes: &[u8], is_such: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|&&byte| is_such(byte)).count()
}

/// Whether a byte may occur in a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads a document about a protected resource; `None` if it is too long, breaks off, or does not arrive in time.
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

/// Returns the document with the public URL as its `resource`; `None` if it has no such member.
pub(crate) fn with_public_resource(document: &Bytes, public: &Url) -> Option<Bytes> {
    let is_resource =
        |member: &json::Member| json::key_is(&document[member.key.clone()], "resource");
    // The last of several equal members is used, as by the parsers of JavaScript and Python.
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
        let named = "\"https://front.example/mcp/tools/.well-known/oauth-protected-resource\"";
        for (challenge, expected) in [
            ("Bearer resource_metadata=\"https://up/x\"", "Bearer resource_metadata=NAMED"),
            ("Bearer resource_metadata=https://up/x", "Bearer resource_metadata=NAMED"),
            (
                "Bearer Resource_Metadata = https://up/x?a=b, scope=\"s\"",
                "Bearer Resource_Metadata = NAMED, scope=\"s\"",
            ),
            (
                "Bearer error=\"e\", resource_metadata=\"\", scope=\"s\"",
                "Bearer error=\"e\", resource_metadata=NAMED, scope=\"s\"",
            ),
            (
                "DPoP resource_metadata=a, Bearer resource_metadata=\"b\"",
                "DPoP resource_metadata=NAMED, Bearer resource_metadata=NAMED",
            ),
            (
                r#"Bearer error="resource_metadata=\"x\"", resource_metadata=""#,
                r#"Bearer error="resource_metadata=\"x\"", resource_metadata=""#,
            ),
            ("Bearer x_resource_metadata=\"u\"", "Bearer x_resource_metadata=\"u\""),
            ("Bearer resource_metadata", "Bearer resource_metadata"),
            ("Bearer resource_metadata=\"https://up/x", "Bearer resource_metadata=\"https://up/x"),
            ("Basic realm=\"x\"", "Basic realm=\"x\""),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Basic"));
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            rewrite_challenges(&mut headers, &public());
            let found: Vec<_> = headers.get_all(WWW_AUTHENTICATE).iter().collect();
            assert_eq!(found, ["Basic", &expected.replace("NAMED", named)]);
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
