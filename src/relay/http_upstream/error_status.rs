//! HTTP error statuses, as errors for the client.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use crate::protocol::jsonrpc::own_error;

/// Whether a status says that the credentials were missing or refused.
pub(crate) fn is_about_access(status: StatusCode) -> bool {
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status)
}

/// The answer to the request `id`: with the server's own `error`, if that error is complete, or
/// with an error of Milepost's own with the reason `why`.
pub(crate) fn answer(id: &Bytes, error: Option<&Bytes>, why: &str, status: StatusCode) -> Bytes {
    match error {
        Some(error) if !is_about_access(status) => {
            let head = br#"{"jsonrpc":"2.0","id":"#;
            Bytes::from([&head[..], id, br#","error":"#, error, b"}"].concat())
        }
        _ => own_error(id, why, Some(status.as_u16())),
    }
}

/// A status in words for those who configured the server.
pub(crate) fn explain(status: StatusCode, headers: &HeaderMap) -> String {
    let mut text = format!("the server answered with HTTP status {status}");
    if is_about_access(status) {
        text += ": the token for it is missing or not accepted (in `milepost wrap` --bearer-file, \
                 --bearer-env or --header, in a route file `headers.request`)";
    } else if status.is_redirection()
        && let Some(place) = headers.get(header::LOCATION).and_then(|place| place.to_str().ok())
    {
        // A query may hold a secret, and so may what stands before the host.
        let place = place.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = place.split_once("//").unwrap_or((place, ""));
        let host = rest.find('/').unwrap_or(rest.len());
        let user = rest.get(..host).and_then(|host| host.rfind('@')).map_or(0, |at| at + 1);
        let slashes = if rest.is_empty() { "" } else { "//" };
        let place = format!("{scheme}{slashes}{}", rest.get(user..).unwrap_or_default());
        text += &format!(": it is at {place:?} now, and its address has to say so");
    }
    text
}
