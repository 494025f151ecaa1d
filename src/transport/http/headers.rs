//! The headers that are forwarded from one side to the other. All functions are pure, except for reading the files of
//! `bearer_file` (`set_headers.rs`).
//!
//! Headers of one connection stay on that connection. All other headers are forwarded unchanged, in their order and
//! number, even unknown `Mcp-Param-*`. For `X-Forwarded-*` the route has a rule (`forwarded.rs`).

use std::borrow::Cow;
use std::mem;

use http::header::{
    ACCEPT_ENCODING, ALT_SVC, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, Entry,
    HOST, SET_COOKIE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use super::content_length::write_once;
use super::set_headers::set_headers;
use super::via::Via;
use crate::config::routes::HeaderRules;
use crate::observe::metrics::Traffic;

/// What changes in the headers of a message between the two sides.
#[derive(Debug, Clone, Copy)]
pub struct Passage<'a> {
    /// Milepost's name in `Via`.
    pub via: &'a Via,
    /// The headers that the route sets and removes.
    pub rules: &'a HeaderRules,
    /// The HTTP version of the received message.
    pub received: Version,
    /// Whether the body that is sent differs from the body that was received, so that its length and digests change.
    pub body_changes: bool,
    /// Counts notices about the server, if anybody reads them.
    pub traffic: Option<&'a Traffic>,
}

/// The destination of a request.
#[derive(Debug, Clone, Copy)]
pub struct Onward<'a> {
    /// The upstream's authority, for `Host`; `None` for HTTP/2, which has it in another place.
    pub host: Option<&'a HeaderValue>,
    /// Whether the route is opaque: the upstream may then compress its bodies, because Milepost does not read them.
    pub opaque: bool,
    /// Whether Milepost sends an `Authorization` of its own in place of the client's.
    pub replaces_authorization: bool,
}

/// Returns the headers of a request for its upstream.
///
/// They include `Authorization` and cookies, so the caller must send them only to the upstream of the route.
pub fn request_headers(headers: HeaderMap, passage: &Passage<'_>, to: &Onward<'_>) -> HeaderMap {
    onward_headers(Cow::Owned(headers), passage, to)
}

/// Returns the same as [`request_headers`] for headers that are needed again.
pub(crate) fn onward_headers(
    headers: Cow<'_, HeaderMap>,
    passage: &Passage<'_>,
    to: &Onward<'_>,
) -> HeaderMap {
    let ours = |name: &HeaderName| {
        *name == HOST
            // `Expect` has been answered here: the listener sends `100 Continue`.
            || *name == EXPECT
            || (*name == AUTHORIZATION && to.replaces_authorization)
            || (*name == ACCEPT_ENCODING && !to.opaque)
            // Cookies are not forwarded as they are, because they are joined below.
            || *name == COOKIE
    };
    let mut passed = match (headers, to.host) {
        (Cow::Owned(mut headers), Some(host)) if is_forwarded_whole(&headers, passage, ours) => {
            headers.insert(HOST, host.clone());
            headers
        }
        (headers, host) => {
            let mut passed = HeaderMap::with_capacity(headers.len() + 4);
            // `Host` goes first, as RFC 9110, 7.2 recommends, and browsers and SDKs do.
            if let Some(host) = host {
                passed.insert(HOST, host.clone());
            }
            let cookies = cookies(&headers);
            forward(headers, passage, ours, &mut passed);
            if let Some(cookies) = cookies {
                passed.insert(COOKIE, cookies);
            }
            passed
        }
    };
    // Milepost has to read the messages, so the server is asked not to compress them.
    if !to.opaque {
        passed.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    finish(passage, &mut passed);
    passed
}

/// Returns the headers of a response for the client.
pub fn response_headers(headers: HeaderMap, passage: &Passage<'_>) -> HeaderMap {
    // `Alt-Svc` names another address of the server: a client that used it would bypass the proxy.
    let ours = |name: &HeaderName| *name == ALT_SVC;
    let stays = |name: &HeaderName| is_hop_by_hop(name) || stays_here(name, passage, ours);
    let mut passed = if headers.keys().any(stays) {
        let mut passed = HeaderMap::with_capacity(headers.len() + 2);
        forward(Cow::Owned(headers), passage, ours, &mut passed);
        passed
    } else {
        // Without `Connection`, no further header belongs to the connection, so all of them are forwarded.
        headers
    };
    finish(passage, &mut passed);
    passed
}

/// Prefix of the names of cookies that are valid only with the path `/` (RFC 6265bis).
const HOST_COOKIE: &[u8] = b"__Host-";

/// Rewrites the paths of cookies that a server sets: `own` is the server's path, `route` the path that clients know.
/// The part of a cookie's path below the server's path is kept. Without the rewrite the client would not send the
/// cookie to the route, or would send it to other routes too. A cookie without a path stays unchanged, because its
/// client uses the path of the request.
pub fn move_cookies(headers: &mut HeaderMap, own: &str, route: &str) {
    let (own, route) = (own.trim_end_matches('/'), route.trim_end_matches('/'));
    if let Entry::Occupied(mut cookies) = headers.entry(SET_COOKIE) {
        for cookie in cookies.iter_mut() {
            if let Some(moved) = moved_cookie(cookie.as_bytes(), own, route) {
                // A new value is not marked as sensitive, and would appear in debug output.
                let is_sensitive = cookie.is_sensitive();
                *cookie = moved;
                cookie.set_sensitive(is_sensitive);
            }
        }
    }
}

fn moved_cookie(cookie: &[u8], own: &str, route: &str) -> Option<HeaderValue> {
    let mut moved = Vec::with_capacity(cookie.len() + route.len());
    let mut parts = cookie.split(|byte| *byte == b';');
    let first = parts.next()?;
    if first.trim_ascii().starts_with(HOST_COOKIE) {
        return None;
    }
    moved.extend_from_slice(first);
    for part in parts {
        moved.push(b';');
        let text = part.trim_ascii();
        let path = text.iter().position(|byte| *byte == b'=').map(|at| text.split_at(at));
        let path = path.filter(|(name, _)| name.trim_ascii().eq_ignore_ascii_case(b"path"));
        let path = path.map(|(_, value)| value[1..].trim_ascii());
        // RFC 6265, 5.2.4: a path that does not begin with `/` is ignored, and the client uses the path of the request.
        let Some(path) = path.filter(|path| path.starts_with(b"/")) else {
            moved.extend_from_slice(part);
            continue;
        };
        let below = path.strip_prefix(own.as_bytes()).filter(|rest| rest.starts_with(b"/"));
        let below = below.filter(|rest| !own.is_empty() && rest.len() > 1).unwrap_or_default();
        let name = part.split(|byte| *byte == b'=').next().unwrap_or_default();
        // The path of a cookie must not be empty.
        let root: &[u8] = if route.is_empty() && below.is_empty() { b"/" } else { b"" };
        moved.extend_from_slice(&[name, b"=", route.as_bytes(), root, below].concat());
    }
    HeaderValue::from_bytes(&moved).ok()
}

/// Returns all headers of a message except those of its connection, for the connection from one replica to another.
pub(crate) fn next_hop_headers(headers: HeaderMap) -> HeaderMap {
    // Without `Connection` no other header belongs to the connection.
    if !headers.keys().any(|name| *name == EXPECT || is_hop_by_hop(name)) {
        return headers;
    }
    let mut passed = HeaderMap::with_capacity(headers.len() + 2);
    keep(Cow::Owned(headers), |name| *name == EXPECT, &mut passed);
    passed
}

/// Whether the headers of a request begin with `Host`, and all others are forwarded. Then the map itself is forwarded
/// with another `Host`, because the headers are in the order that a new map would have: a removal would move others.
fn is_forwarded_whole(
    headers: &HeaderMap,
    passage: &Passage<'_>,
    ours: impl Fn(&HeaderName) -> bool,
) -> bool {
    let mut names = headers.keys();
    // Without `Connection` no header is named as one of the connection.
    names.next() == Some(&HOST)
        && !names.any(|name| is_hop_by_hop(name) || stays_here(name, passage, &ours))
}

fn forward(
    headers: Cow<'_, HeaderMap>,
    passage: &Passage<'_>,
    ours: impl Fn(&HeaderName) -> bool,
    passed: &mut HeaderMap,
) {
    keep(headers, |name| stays_here(name, passage, &ours), passed);
}

/// Whether a header is not forwarded for another reason than that it belongs to one connection.
fn stays_here(
    name: &HeaderName,
    passage: &Passage<'_>,
    ours: impl Fn(&HeaderName) -> bool,
) -> bool {
    (passage.body_changes && is_about_the_body(name))
        || passage.rules.remove.contains(name)
        || ours(name)
}

/// Adds to `passed` the headers that neither belong to one connection nor stay here for another reason.
fn keep(headers: Cow<'_, HeaderMap>, stays: impl Fn(&HeaderName) -> bool, passed: &mut HeaderMap) {
    let named = named_by_connection(&headers);
    let stays = |name: &HeaderName| is_hop_by_hop(name) || named.contains(name) || stays(name);
    let headers = match headers {
        Cow::Owned(headers) => headers,
        Cow::Borrowed(headers) => {
            for (name, value) in headers.iter().filter(|(name, _)| !stays(name)) {
                passed.append(name.clone(), value.clone());
            }
            return;
        }
    };
    move_headers(headers, stays, passed);
}

/// Moves the headers that do not stay, in their order.
fn move_headers(headers: HeaderMap, stays: impl Fn(&HeaderName) -> bool, passed: &mut HeaderMap) {
    let mut last: Option<HeaderName> = None;
    let mut headers = headers.into_iter().peekable();
    while let Some((name, value)) = headers.next() {
        // The iterator gives a name only with its first value.
        if name.is_some() {
            last = name.filter(|name| !stays(name));
        }
        let Some(name) = last.take() else { continue };
        if headers.peek().is_some_and(|(next, _)| next.is_none()) {
            passed.append(&name, value);
            last = Some(name);
        } else {
            // The name is moved, because a copy of a name that HTTP does not define would cost an allocation.
            passed.append(name, value);
        }
    }
}

fn finish(passage: &Passage<'_>, passed: &mut HeaderMap) {
    write_once(passed);
    // `Via` is added first, so that a rule of the route can remove it. Headers that the route sets replace all others.
    passage.via.append(passed, passage.received);
    // Only Milepost's own headers with these names are still there, because those of the message are already removed.
    // They are the last entries, so their removal moves no other entry.
    for name in passage.rules.remove.iter().filter(|name| [VIA, ACCEPT_ENCODING].contains(name)) {
        passed.remove(name);
    }
    set_headers(passage.rules, passage.traffic, passed);
}

/// Whether a header belongs to one connection, and is never forwarded, whatever `Connection` says.
pub(super) fn is_hop_by_hop(name: &HeaderName) -> bool {
    // Compared as text, because a list of names would be built anew for each comparison.
    match name.as_str() {
        "connection" | "te" | "trailer" | "transfer-encoding" | "upgrade" => true,
        "keep-alive" | "http2-settings" => true,
        // RFC 9110, 11.7: `Proxy-Authenticate` and its like are meant for the next client or server only.
        name => name.starts_with("proxy-"),
    }
}

/// Whether a header describes the body, so that it would be wrong with another body.
fn is_about_the_body(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH
        || matches!(name.as_str(), "content-md5" | "digest" | "content-digest" | "repr-digest")
}

/// Removes the headers that would be wrong with another body.
pub(crate) fn remove_body_headers(headers: &mut HeaderMap) {
    let wrong: Vec<HeaderName> =
        headers.keys().filter(|name| is_about_the_body(name)).cloned().collect();
    for name in wrong {
        headers.remove(name);
    }
}

/// Removes a header from a message. The other headers keep their order, which `HeaderMap::remove` would change.
pub fn remove_in_order(headers: &mut HeaderMap, removed: &HeaderName) {
    let mut kept = HeaderMap::with_capacity(headers.len());
    move_headers(mem::take(headers), |name| name == removed, &mut kept);
    *headers = kept;
}

/// The headers that `Connection` names, and that go no further than this connection.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    // RFC 9110, 7.6.1: a proxy removes the headers that `Connection` names before it forwards a message.
    let lines = headers.get_all(CONNECTION).iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// Joins cookies into one header, because HTTP/2 allows several and HTTP/1.1 only one.
fn cookies(headers: &HeaderMap) -> Option<HeaderValue> {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    match lines[..] {
        [] => None,
        [_] => headers.get(COOKIE).cloned(),
        // RFC 9113, 8.2.3: the lines of HTTP/2 become one with `; ` between them for HTTP/1.1.
        _ => HeaderValue::from_bytes(&lines.join(&b"; "[..])).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.iter().map(|(name, value)| format!("{name}: {}", text(value))).collect()
    }

    struct Case {
        rules: HeaderRules,
        body_changes: bool,
        host: Option<&'static str>,
        opaque: bool,
        replaces_authorization: bool,
    }

    impl Default for Case {
        fn default() -> Self {
            Self {
                rules: HeaderRules::default(),
                body_changes: false,
                host: Some("up.example:8080"),
                opaque: false,
                replaces_authorization: false,
            }
        }
    }

    impl Case {
        fn run(&self, headers: &[&str], request: bool) -> Vec<String> {
            let via = Via::named(7);
            let passage = Passage {
                via: &via,
                rules: &self.rules,
                received: Version::HTTP_11,
                body_changes: self.body_changes,
                traffic: None,
            };
            let host = self.host.map(HeaderValue::from_static);
            let to = Onward {
                host: host.as_ref(),
                opaque: self.opaque,
                replaces_authorization: self.replaces_authorization,
            };
            lines(&if request {
                request_headers(map(headers), &passage, &to)
            } else {
                response_headers(map(headers), &passage)
            })
        }

        #[track_caller]
        fn request(&self, headers: &[&str], passed: &[&str]) {
            assert_eq!(self.run(headers, true), passed);
        }

        #[track_caller]
        fn response(&self, headers: &[&str], passed: &[&str]) {
            assert_eq!(self.run(headers, false), passed);
        }
    }

    const HOP: &str = "via: 1.1 milepost-00000007";
    const HOST: &str = "host: up.example:8080";
    const IDENTITY: &str = "accept-encoding: identity";

    /// Headers that are forwarded in the client's own map, and headers for which a new one is made.
    #[test]
    fn the_clients_map_is_forwarded_as_a_new_one_would_be() {
        let own = ["host: localhost", "user-agent: a", "accept: x", "accept: y", "mcp-name: b"];
        let others = [
            "host: other",
            "via: 1.1 nginx",
            "content-length: 5",
            "accept-encoding: gzip",
            "authorization: c",
            "connection: close, mcp-name",
            "cookie: a=1",
            "te: trailers",
            "x-odd: d",
            "digest: e",
        ];
        let via = Via::named(7);
        let removes =
            HeaderRules { remove: vec!["x-odd".parse().unwrap()], ..HeaderRules::default() };
        let host = HeaderValue::from_static("up.example:8080");
        let hosts = [None, Some(&host)];
        let flags = [false, true];
        let rules = [&HeaderRules::default(), &removes];
        let mut whole = 0;
        for (other, place) in
            others.iter().flat_map(|other| (0..=own.len()).map(move |at| (other, at)))
        {
            let mut headers = own.to_vec();
            headers.insert(place, other);
            for (host, rules) in
                hosts.iter().flat_map(|host| rules.iter().map(move |rules| (host, rules)))
            {
                for (body_changes, opaque) in
                    flags.iter().flat_map(|one| flags.map(|two| (*one, two)))
                {
                    let received = Version::HTTP_11;
                    let passage =
                        Passage { via: &via, rules, received, body_changes, traffic: None };
                    let to = Onward { host: *host, opaque, replaces_authorization: opaque };
                    let headers = map(&headers);
                    whole += usize::from(is_forwarded_whole(&headers, &passage, |_| false));
                    let made = onward_headers(Cow::Borrowed(&headers), &passage, &to);
                    assert_eq!(lines(&request_headers(headers, &passage, &to)), lines(&made));
                }
            }
        }
        assert!(whole > 0);
    }

    #[test]
    fn everything_passes_in_its_order_and_as_often_as_it_came() {
        Case::default().request(
            &[
                "host: localhost:7332",
                "mcp-param-z: =?base64?SGk=?=",
                "mcp-param-a: ",
                "mcp-param-z: 2",
                "authorization: Bearer abc",
                "origin: http://localhost:6274",
                "accept: application/json, text/event-stream",
                "x-forwarded-for: 10.0.0.1",
                "content-length: 12",
                "mcp-session-id: s",
                "x-odd: caf\u{e9}",
            ],
            &[
                HOST,
                "mcp-param-z: =?base64?SGk=?=",
                "mcp-param-z: 2",
                "mcp-param-a: ",
                "authorization: Bearer abc",
                "origin: http://localhost:6274",
                "accept: application/json, text/event-stream",
                "x-forwarded-for: 10.0.0.1",
                "content-length: 12",
                "mcp-session-id: s",
                "x-odd: caf\u{e9}",
                IDENTITY,
                HOP,
            ],
        );
    }

    #[test]
    fn what_belongs_to_one_connection_stays_there() {
        let hop_by_hop = [
            "connection: keep-alive, X-Private, , bad name",
            "connection: X-Other",
            "keep-alive: timeout=5",
            "x-private: 1",
            "x-other: 2",
            "proxy-connection: keep-alive",
            "proxy-authorization: Basic x",
            "proxy-authenticate: Basic",
            "te: trailers",
            "trailer: x",
            "transfer-encoding: chunked",
            "upgrade: h2c",
            "http2-settings: AAMAAABkAAQAAP__",
            "x-kept: 3",
        ];
        Case::default().request(&hop_by_hop, &[HOST, "x-kept: 3", IDENTITY, HOP]);
        Case::default().response(&hop_by_hop, &["x-kept: 3", HOP]);
        Case::default().request(&["expect: 100-continue"], &[HOST, IDENTITY, HOP]);
    }

    #[test]
    fn the_upstream_does_not_compress_what_is_to_be_read() {
        let asked = ["accept-encoding: gzip, br"];
        Case::default().request(&asked, &[HOST, IDENTITY, HOP]);
        let opaque = Case { opaque: true, ..Case::default() };
        opaque.request(&asked, &[HOST, "accept-encoding: gzip, br", HOP]);
        opaque.request(&[], &[HOST, HOP]);
    }

    #[test]
    fn a_token_that_was_for_us_goes_no_further() {
        let ours = Case { replaces_authorization: true, ..Case::default() };
        let sent = ["authorization: Bearer ours", "cookie: a=1"];
        ours.request(&sent, &[HOST, "cookie: a=1", IDENTITY, HOP]);
    }

    #[test]
    fn a_header_is_removed_and_the_others_keep_their_order() {
        let mut headers =
            map(&["host: a", "authorization: Bearer ours", "x-a: 1", "x-a: 2", "x-b: 3"]);
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer theirs"));
        remove_in_order(&mut headers, &AUTHORIZATION);
        assert_eq!(lines(&headers), ["host: a", "x-a: 1", "x-a: 2", "x-b: 3"]);
    }

    #[test]
    fn cookies_that_came_in_pieces_go_in_one() {
        Case::default().request(
            &["cookie: a=1", "cookie: b=2; c=3"],
            &[HOST, "cookie: a=1; b=2; c=3", IDENTITY, HOP],
        );
    }

    #[test]
    fn towards_http_2_there_is_no_host() {
        let case = Case { host: None, ..Case::default() };
        case.request(&["host: localhost:7332"], &[IDENTITY, HOP]);
    }

    #[test]
    fn a_changed_body_has_another_length_and_digest() {
        let of_a_body = ["content-length: 5", "content-type: application/json", "digest: x"];
        Case::default().response(&of_a_body, &[of_a_body[0], of_a_body[1], of_a_body[2], HOP]);
        let changed = Case { body_changes: true, ..Case::default() };
        changed.response(&of_a_body, &[of_a_body[1], HOP]);
        changed.request(&of_a_body, &[HOST, of_a_body[1], IDENTITY, HOP]);
    }

    #[test]
    fn challenges_and_cookies_of_the_upstream_all_pass() {
        let sent = [
            "www-authenticate: Bearer resource_metadata=\"https://up/.well-known/x\"",
            "www-authenticate: Basic",
            "set-cookie: a=1",
            "set-cookie: b=2",
            "mcp-session-id: s",
        ];
        let mut passed = sent.to_vec();
        passed.push(HOP);
        Case::default().response(&sent, &passed);
        Case::default().response(&["alt-svc: h3=\":443\""], &[HOP]);
    }

    #[test]
    fn cookies_get_the_path_of_the_route() {
        let moved = |own: &str, route: &str, cookie: &str| {
            let mut headers = map(&[&format!("set-cookie: {cookie}")]);
            move_cookies(&mut headers, own, route);
            headers[SET_COOKIE].to_str().unwrap().to_owned()
        };
        for (cookie, expected) in [
            ("a=1", "a=1"),
            ("a=1; Path=/", "a=1; Path=/r/x"),
            ("a=/; path = /mcp ;HttpOnly", "a=/; path =/r/x;HttpOnly"),
            ("a=1; Path=/mcp/", "a=1; Path=/r/x"),
            ("a=1; Path=/mcp/deep; Secure", "a=1; Path=/r/x/deep; Secure"),
            ("a=1; Path=/mcpx", "a=1; Path=/r/x"),
            ("a=1; Path=/login", "a=1; Path=/r/x"),
            ("a=1; Path=; Path=/", "a=1; Path=; Path=/r/x"),
            ("a=1; Pathology=/", "a=1; Pathology=/"),
            ("__Host-a=1; Path=/", "__Host-a=1; Path=/"),
            ("", ""),
        ] {
            assert_eq!(moved("/mcp", "/r/x", cookie), expected);
        }
        assert_eq!(moved("/", "/r", "a=1; Path=/deep"), "a=1; Path=/r");
        assert_eq!(moved("/mcp", "/", "a=1; Path=/mcp"), "a=1; Path=/");
    }

    #[test]
    fn earlier_hops_stay_before_ours() {
        Case::default().request(
            &["via: 1.1 a", "via: 1.1 b", "x: y"],
            &[HOST, "via: 1.1 a", "via: 1.1 b", HOP, "x: y", IDENTITY],
        );
    }

    #[test]
    fn rules_have_the_last_word_but_for_what_belongs_to_a_connection() {
        let set = |name: &str, value: &'static str| {
            (name.parse().unwrap(), HeaderValue::from_static(value))
        };
        let rules = HeaderRules {
            bearer_files: Vec::new(),
            set: vec![
                set("authorization", "Bearer up"),
                set("x-new", "1"),
                set("transfer-encoding", "gzip"),
            ],
            remove: vec!["x-gone".parse().unwrap(), "via".parse().unwrap()],
            cookie_path: false,
        };
        let case = Case { rules, replaces_authorization: true, ..Case::default() };
        case.request(
            &["x-gone: 1", "x-gone: 2", "authorization: Bearer ours"],
            &[HOST, IDENTITY, "authorization: Bearer up", "x-new: 1"],
        );
    }
}
