//! Headers of a request that are not forwarded, because a setting determines their value and the client must not.

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

use crate::config::routes::{ForwardedRule, FrontHeader, Route, Server};

/// The beginning of the names of the older headers in which fronts describe their clients.
const X_FORWARDED: &str = "x-forwarded-";

/// Finds the headers that are not forwarded: those of `Forwarded` and `X-Forwarded-*` that fronts do not write, and
/// headers with another spelling of a name that a setting determines.
///
/// CGI, WSGI and PHP give a program both `X_User` and `X-User` as `HTTP_X_USER`, so that one can imitate the other.
/// nginx therefore drops names with `_`, and Apache names with any sign except `-`. Here only those names are dropped
/// that could be mistaken for the principal, a front's client or a header that the route sets or removes.
pub(super) fn foreign_headers(
    server: &Server,
    route: Option<&Route>,
    headers: &HeaderMap,
) -> Vec<HeaderName> {
    // Most listeners have no setting that decides about a header.
    if !decides(server, route) {
        return Vec::new();
    }
    let is_foreign = |name: &&HeaderName| {
        let text = name.as_str();
        let is_other_form = match server.front_header {
            FrontHeader::Either => false,
            FrontHeader::XForwardedFor => **name == FORWARDED,
            FrontHeader::Forwarded => begins_alike(text, X_FORWARDED),
        };
        is_other_form || is_decided(server, route, text)
    };
    headers.keys().filter(is_foreign).cloned().collect()
}

/// Whether a setting determines the value of any header.
fn decides(server: &Server, route: Option<&Route>) -> bool {
    server.principal.is_some()
        || decides_on_fronts(server, route)
        || route.is_some_and(|route| {
            !route.request_headers.set.is_empty() || !route.request_headers.remove.is_empty()
        })
}

/// Whether a setting determines the headers in which fronts describe their clients.
fn decides_on_fronts(server: &Server, route: Option<&Route>) -> bool {
    server.front_header != FrontHeader::Either
        || route.is_some_and(|route| route.forwarded != ForwardedRule::Pass)
}

/// Whether some servers read the header `text` under the same name as a header that a setting determines.
fn is_decided(server: &Server, route: Option<&Route>, text: &str) -> bool {
    let is_same = |name: &HeaderName| name.as_str() != text && is_alike(text, name.as_str());
    let rules = route.map(|route| &route.request_headers);
    server.principal.as_ref().is_some_and(is_same)
        || decides_on_fronts(server, route) && has_sign(text) && begins_alike(text, X_FORWARDED)
        || rules.is_some_and(|rules| {
            rules.set.iter().any(|(name, _)| is_same(name)) || rules.remove.iter().any(is_same)
        })
}

/// Whether a name has a sign besides `-` that some servers read as `_`.
fn has_sign(text: &str) -> bool {
    text.bytes().any(|byte| !byte.is_ascii_alphanumeric() && byte != b'-')
}

/// Whether some servers read `text` as a name that begins with `name`.
fn begins_alike(text: &str, name: &str) -> bool {
    text.get(..name.len()).is_some_and(|start| is_alike(start, name))
}

/// Whether some servers read `text` as `name`.
fn is_alike(text: &str, name: &str) -> bool {
    let read =
        |byte: u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'_' };
    text.len() == name.len()
        && text.bytes().zip(name.bytes()).all(|(one, other)| read(one) == read(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::routes::Upstream;

    fn plain_route() -> Route {
        Route::new("/a".to_owned(), Upstream::Demo)
    }

    /// Returns those of the headers `names` that are not forwarded.
    fn left_out(server: &Server, route: &Route, names: &[&'static str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(HeaderName::from_static(name), "1".parse().unwrap());
        }
        let found = foreign_headers(server, Some(route), &headers);
        found.iter().map(|name| name.as_str().to_owned()).collect()
    }

    const SENT: [&str; 10] = [
        "x-user",
        "x_user",
        "x.user",
        "x_users",
        "x-forwarded-for",
        "x_forwarded_for",
        "x-forwarded_for",
        "forwarded",
        "x_api_key",
        "x_other",
    ];

    #[test]
    fn a_header_that_some_servers_read_as_another_is_left_out_where_a_setting_decides() {
        let route = plain_route();
        assert!(left_out(&Server::default(), &route, &SENT).is_empty());
        let principal = Some(HeaderName::from_static("x-user"));
        let server = Server { principal, ..Server::default() };
        assert_eq!(left_out(&server, &route, &SENT), ["x_user", "x.user"]);
        for forwarded in [ForwardedRule::Drop, ForwardedRule::Append] {
            let mut route = plain_route();
            route.forwarded = forwarded;
            let found = left_out(&Server::default(), &route, &SENT);
            assert_eq!(found, ["x_forwarded_for", "x-forwarded_for"]);
        }
        let mut route = plain_route();
        route.request_headers.remove.push(HeaderName::from_static("x-api-key"));
        assert_eq!(left_out(&Server::default(), &route, &SENT), ["x_api_key"]);
        // The name of the `principal` header may itself contain a `_`.
        let principal = Some(HeaderName::from_static("x_user"));
        let server = Server { principal, ..Server::default() };
        assert_eq!(left_out(&server, &plain_route(), &SENT), ["x-user", "x.user"]);
    }

    #[test]
    fn the_form_that_fronts_do_not_write_is_left_out() {
        let with = |front_header| Server { front_header, ..Server::default() };
        let route = plain_route();
        let found = left_out(&with(FrontHeader::XForwardedFor), &route, &SENT);
        assert_eq!(found, ["x_forwarded_for", "x-forwarded_for", "forwarded"]);
        let found = left_out(&with(FrontHeader::Forwarded), &route, &SENT);
        assert_eq!(found, ["x-forwarded-for", "x_forwarded_for", "x-forwarded_for"]);
    }
}
