//! CORS: the headers and responses that let browser clients of another origin read answers.
//!
//! If the route has `cors`, Milepost answers in the upstream's place. Otherwise the upstream answers, and Milepost only
//! adds headers that MCP clients need to those that the upstream exposes.

use std::collections::VecDeque;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::config::routes::Cors;

/// Response headers that a browser client must be able to read, for its session and its authorization.
const EXPOSED: [&str; 2] = ["Mcp-Session-Id", "WWW-Authenticate"];

/// The time in seconds for which a browser may keep the answer to a preflight: two hours, the maximum of Chromium.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// Limit of the origins of one route whose CORS headers are remembered. Real routes have a few.
const ORIGINS_MAX: usize = 64;

/// Limit of the bytes of an origin with its CORS headers that are remembered.
const KNOWN_BYTES_MAX: usize = 2048;

/// Whether a request is a browser's preflight request, and not a request of the page itself.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    // Other OPTIONS requests come from the page itself, and are forwarded to the server.
    *method == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Returns the answer to a preflight request. If the origin is not allowed, the answer has no CORS headers, which the
/// browser treats as a refusal.
pub fn preflight(cors: &Cors, headers: &HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    // A body is not needed, because a browser reads only the headers of the answer.
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    let vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
    answer.insert(VARY, HeaderValue::from_static(vary));
    if let Some(origin) = served(cors, headers.get(ORIGIN)) {
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let methods = HeaderValue::from_static("GET, POST, DELETE");
        answer.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        // All requested headers are allowed: the upstream decides which of them it uses. `*` would not suffice, because
        // it does not include `Authorization`.
        for asked in headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
            answer.append(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
        }
        answer.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    }
    response
}

/// Sets the CORS headers of a response. `cors`: the setting of the route; `origin`: the request's `Origin`; `response`:
/// the headers for the client.
pub fn answer(cors: Option<&Cors>, origin: Option<&HeaderValue>, response: &mut HeaderMap) {
    let Some(cors) = cors else { return expose(response) };
    // The server's own CORS headers must not appear beside those of the route.
    for ours in [ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_ALLOW_CREDENTIALS] {
        response.remove(ours);
    }
    vary_by_origin(response);
    if let Some(origin) = served(cors, origin) {
        response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        expose(response);
    }
}

/// Adds the headers that clients need to those exposed, if an origin may read the response at all.
fn expose(response: &mut HeaderMap) {
    if !response.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    // `*` means all headers only in requests without credentials, so the names are added even then.
    let is_there = |name: &str| {
        let lines = response.get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter();
        let mut names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        names.any(|known| known.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    };
    let missing: Vec<&str> = EXPOSED.into_iter().filter(|name| !is_there(name)).collect();
    if let Ok(names) = HeaderValue::try_from(missing.join(", "))
        && !names.is_empty()
    {
        response.append(ACCESS_CONTROL_EXPOSE_HEADERS, names);
    }
}

/// Adds `Vary: Origin`, because caches must not give one origin the answer to another.
fn vary_by_origin(response: &mut HeaderMap) {
    let lines = response.get_all(VARY).iter();
    let mut names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    // `Vary: *` already includes the origin.
    if !names.any(|name| matches!(&name.trim_ascii().to_ascii_lowercase()[..], b"*" | b"origin")) {
        response.append(VARY, HeaderValue::from_static("Origin"));
    }
}

/// Returns the request's origin, if the route serves it. Admission has already checked that the origin may use the
/// listener.
fn served<'a>(cors: &Cors, origin: Option<&'a HeaderValue>) -> Option<&'a HeaderValue> {
    let origin = origin?;
    let same =
        |known: &String| known == "*" || known.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
    cors.origins.iter().any(same).then_some(origin)
}

/// The CORS headers that a route's upstream sends to each origin, for responses that must begin before the upstream has
/// answered. Their number is limited: a new origin replaces the oldest.
#[derive(Debug, Clone, Default)]
pub struct CorsOrigins {
    origins: VecDeque<(HeaderValue, HeaderMap)>,
}

impl CorsOrigins {
    /// Remembers the CORS headers of the upstream's unchanged `response` for the request's `origin`. If the response
    /// has no such headers, the origin is forgotten.
    pub fn note(&mut self, origin: Option<&HeaderValue>, response: &HeaderMap) {
        let Some(origin) = origin else { return };
        // Remove the old entry first: an origin that is no longer allowed must not get its earlier headers.
        self.origins.retain(|(known, _)| known != origin);
        let about = |name: &HeaderName| {
            [
                ACCESS_CONTROL_ALLOW_ORIGIN,
                ACCESS_CONTROL_ALLOW_CREDENTIALS,
                ACCESS_CONTROL_EXPOSE_HEADERS,
            ]
            .contains(name)
        };
        let mut kept = HeaderMap::new();
        let mut bytes = origin.len();
        for (name, value) in response.iter().filter(|(name, _)| about(name)) {
            bytes += name.as_str().len() + value.len();
            kept.append(name, value.clone());
        }
        // Headers that are too long are not remembered: responses wait for the server's own headers.
        if !kept.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) || bytes > KNOWN_BYTES_MAX {
            return;
        }
        if self.origins.len() == ORIGINS_MAX {
            self.origins.pop_front();
        }
        self.origins.push_back((origin.clone(), kept));
    }

    /// Returns the CORS headers that a response to this origin will have; `None` if they are not known. Without an
    /// origin there are none.
    pub fn of(&self, origin: Option<&HeaderValue>) -> Option<HeaderMap> {
        let Some(origin) = origin else { return Some(HeaderMap::new()) };
        let (_, headers) = self.origins.iter().find(|(known, _)| known == origin)?;
        let mut headers = headers.clone();
        vary_by_origin(&mut headers);
        Some(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    fn cors(origins: &[&str]) -> Cors {
        Cors { origins: origins.iter().map(|origin| (*origin).to_owned()).collect() }
    }

    fn from(origin: &'static str) -> Option<&'static HeaderValue> {
        Some(Box::leak(Box::new(HeaderValue::from_static(origin))))
    }

    const ALLOW: &str = "access-control-allow-origin";
    const EXPOSE: &str = "access-control-expose-headers";
    const HERE: &str = "http://localhost:6274";

    #[test]
    fn a_preflight_gets_what_it_asks_for() {
        let asked = map(&[
            ("origin", HERE),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization,mcp-session-id,x-new"),
        ]);
        assert!(is_preflight(&Method::OPTIONS, &asked));
        assert!(!is_preflight(&Method::POST, &asked));
        assert!(!is_preflight(&Method::OPTIONS, &map(&[("origin", HERE)])));
        for origins in [&["*"][..], &["http://other", HERE]] {
            let answer = preflight(&cors(origins), &asked);
            assert_eq!(answer.status(), 204);
            let answer = answer.headers();
            assert_eq!(answer[ALLOW], HERE);
            assert_eq!(answer["access-control-allow-methods"], "GET, POST, DELETE");
            assert_eq!(
                answer["access-control-allow-headers"],
                "authorization,mcp-session-id,x-new"
            );
            assert_eq!(answer["access-control-max-age"], "7200");
            assert!(answer["vary"].to_str().unwrap().starts_with("Origin"));
        }
        let answer = preflight(&cors(&["http://other"]), &asked);
        assert_eq!((answer.status().as_u16(), answer.headers().len()), (204, 1));
    }

    #[test]
    fn where_the_proxy_answers_the_upstream_is_not_heard() {
        let response = || {
            map(&[
                (ALLOW, "*"),
                ("access-control-allow-credentials", "true"),
                (EXPOSE, "X-Own"),
                ("vary", "Accept"),
            ])
        };
        let mut headers = response();
        answer(Some(&cors(&["*"])), from(HERE), &mut headers);
        assert_eq!(headers[ALLOW], HERE);
        assert!(!headers.contains_key("access-control-allow-credentials"));
        let exposed: Vec<_> = headers.get_all(EXPOSE).iter().collect();
        assert_eq!(exposed, ["X-Own", "Mcp-Session-Id, WWW-Authenticate"]);
        let vary: Vec<_> = headers.get_all(VARY).iter().collect();
        assert_eq!(vary, ["Accept", "Origin"]);
        for origin in [None, from("http://other")] {
            let mut headers = response();
            answer(Some(&cors(&[HERE])), origin, &mut headers);
            assert!(!headers.contains_key(ALLOW));
        }
    }

    #[test]
    fn where_the_upstream_answers_only_names_are_added() {
        for (before, after) in [
            (vec![], vec!["Mcp-Session-Id, WWW-Authenticate"]),
            (vec!["mcp-session-id"], vec!["mcp-session-id", "WWW-Authenticate"]),
            (
                vec!["A, MCP-Session-Id , www-authenticate"],
                vec!["A, MCP-Session-Id , www-authenticate"],
            ),
            (vec!["*"], vec!["*", "Mcp-Session-Id, WWW-Authenticate"]),
        ] {
            let mut headers = map(&[(ALLOW, "*")]);
            for line in before {
                headers.append(EXPOSE, HeaderValue::from_static(line));
            }
            answer(None, from(HERE), &mut headers);
            let exposed: Vec<_> = headers.get_all(EXPOSE).iter().collect();
            assert_eq!(exposed, after);
            assert_eq!(headers[ALLOW], "*");
            assert!(!headers.contains_key(VARY));
        }
        let mut silent = map(&[("x", "y")]);
        answer(None, from(HERE), &mut silent);
        assert_eq!(silent, map(&[("x", "y")]));
    }

    #[test]
    fn what_an_upstream_answered_to_an_origin_is_known_for_that_origin() {
        let mut known = CorsOrigins::default();
        let here = from(HERE);
        assert_eq!(known.of(None), Some(HeaderMap::new()));
        assert_eq!(known.of(here), None);
        known.note(here, &map(&[(ALLOW, HERE), ("content-type", "x"), (EXPOSE, "X-Own")]));
        let expected = map(&[(ALLOW, HERE), (EXPOSE, "X-Own"), ("vary", "Origin")]);
        assert_eq!(known.of(here), Some(expected));
        assert_eq!(known.of(from("http://other")), None);
        known.note(here, &map(&[]));
        assert_eq!(known.of(here), None);
    }

    #[test]
    fn what_is_known_has_a_limit() {
        let mut known = CorsOrigins::default();
        let long = "x".repeat(KNOWN_BYTES_MAX);
        known.note(from(HERE), &map(&[(ALLOW, "*"), (EXPOSE, &long)]));
        assert_eq!(known.origins.len(), 0);
        for number in 0..200 {
            let origin = format!("http://localhost:{number}").parse().unwrap();
            known.note(Some(&origin), &map(&[(ALLOW, "*")]));
        }
        assert_eq!(known.origins.len(), ORIGINS_MAX);
        assert!(known.of(from("http://localhost:199")).is_some());
        assert!(known.of(from("http://localhost:0")).is_none());
    }
}
