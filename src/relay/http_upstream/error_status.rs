//! Turns HTTP error statuses into errors for the client.

use std::time::SystemTime;

use bytes::Bytes;
use http::response::Parts;
use http::{StatusCode, header};

use crate::protocol::jsonrpc::refused_error;
use crate::transport::mcp_http::server_words::{refused, retry_after, try_again};

/// Whether a status means that the credentials are missing or refused.
pub(crate) fn is_about_access(status: StatusCode) -> bool {
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status)
}

/// Returns the answer to the request `id`: the server's own `error` if it is complete, or an error of Milepost with the
/// reason `why`.
pub(crate) fn answer(id: &Bytes, error: Option<&Bytes>, why: &str, head: &Parts) -> Bytes {
    match error {
        Some(error) if !is_about_access(head.status) => {
            let head = br#"{"jsonrpc":"2.0","id":"#;
            Bytes::from([&head[..], id, br#","error":"#, error, b"}"].concat())
        }
        _ => {
            let retry_after = retry_after(&head.headers, SystemTime::now());
            refused_error(id, why, head.status.as_u16(), retry_after)
        }
    }
}

/// Returns a text for the person who configured the server: the status, the text of the body, possible advice, and when
/// to retry.
pub(crate) fn explain(head: &Parts, body: &[u8]) -> String {
    let again = try_again(retry_after(&head.headers, SystemTime::now()));
    refused(head.status, body) + &cure(head) + &again
}

/// Returns advice about a status.
fn cure(head: &Parts) -> String {
    if is_about_access(head.status) {
        return ": the token for it is missing or not accepted (in `milepost wrap` --bearer-file, \
                --bearer-env or --header, in a route file `headers.request`)"
            .to_owned();
    }
    let place = head.headers.get(header::LOCATION).and_then(|place| place.to_str().ok());
    let Some(place) = place.filter(|_| head.status.is_redirection()) else { return String::new() };
    // Leave out the query and the user information before the host, because they may contain secrets.
    let place = place.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = place.split_once("//").unwrap_or((place, ""));
    let host = rest.find('/').unwrap_or(rest.len());
    let user = rest.get(..host).and_then(|host| host.rfind('@')).map_or(0, |at| at + 1);
    let slashes = if rest.is_empty() { "" } else { "//" };
    let place = format!("{scheme}{slashes}{}", rest.get(user..).unwrap_or_default());
    format!(": it is at {place:?} now, and its address has to say so")
}
