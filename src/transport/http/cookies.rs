//! The cookies of one session with a server. Load balancers use them to bind a session to a server (RFC 6265).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use cookie::Cookie;
use cookie::time::OffsetDateTime;
use http::{HeaderMap, HeaderValue, header};

/// Limit of the cookies of one session. Load balancers set one or two; browsers keep at least 50 for a host.
const COOKIES_MAX: usize = 50;

/// Limit of the bytes of a cookie that is kept, as in browsers.
const COOKIE_LENGTH_MAX: usize = 4096;

/// The cookies of a session, shared by its requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionCookies {
    stored: Arc<Mutex<Vec<StoredCookie>>>,
}

#[derive(Debug)]
struct StoredCookie {
    name: String,
    value: String,
    path: String,
    /// When the cookie expires; `None`: with the session.
    ends: Option<SystemTime>,
}

/// What decides which cookies a request gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CookiePlace<'a> {
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    /// Whether the connection uses TLS.
    pub(crate) is_secure: bool,
}

impl SessionCookies {
    /// Keeps the cookies that a response sets. A cookie is not kept if it is for another host, if it is longer than
    /// 4,096 bytes, or if it is for TLS only and the connection has none. Of more than 50 the oldest is dropped.
    pub(crate) fn keep(&self, headers: &HeaderMap, place: CookiePlace<'_>, now: SystemTime) {
        let mut values = headers.get_all(header::SET_COOKIE).iter().peekable();
        if values.peek().is_none() {
            return;
        }
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        for value in values.filter(|value| value.len() <= COOKIE_LENGTH_MAX) {
            let Some(new) = value.to_str().ok().and_then(|text| read(text, place, now)) else {
                continue;
            };
            // A new cookie replaces the one with the same name and path. An expired cookie only removes it (RFC 6265,
            // 5.3).
            stored.retain(|old| (&old.name, &old.path) != (&new.name, &new.path));
            if new.ends.is_none_or(|ends| ends > now) {
                // The first is the oldest, because a cookie that is set again moves to the end.
                if stored.len() == COOKIES_MAX {
                    stored.remove(0);
                }
                stored.push(new);
            }
        }
    }

    /// Adds the cookies for a request to its headers. A cookie of the client or the route with the same name takes
    /// precedence.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap, place: CookiePlace<'_>, now: SystemTime) {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.is_empty() {
            return;
        }
        let sent: Vec<&str> =
            headers.get_all(header::COOKIE).iter().filter_map(|one| one.to_str().ok()).collect();
        let mut all = sent.join("; ");
        let names = all.split(';').map(|pair| pair.split('=').next().unwrap_or_default().trim());
        let names: Vec<String> = names.map(str::to_owned).collect();
        for own in stored.iter() {
            let is_due = own.ends.is_none_or(|ends| ends > now) && is_below(place.path, &own.path);
            if is_due && !names.contains(&own.name) {
                let gap = if all.is_empty() { "" } else { "; " };
                all = format!("{all}{gap}{}={}", own.name, own.value);
            }
        }
        if let Ok(mut value) = HeaderValue::try_from(all)
            && !value.is_empty()
        {
            // A value marked as sensitive does not appear in debug output and is not stored in the HTTP/2 compression
            // table.
            value.set_sensitive(true);
            headers.insert(header::COOKIE, value);
        }
    }
}

/// Reads a cookie for this place; `None` if the text is not a cookie, or the cookie is for another place.
fn read(text: &str, place: CookiePlace<'_>, now: SystemTime) -> Option<StoredCookie> {
    let cookie = Cookie::parse(text).ok()?;
    // RFC 6265, 5.1.3: the domain of a cookie includes its own host and all hosts below it.
    let host = place.host.to_ascii_lowercase();
    let domain = cookie.domain().map(|domain| domain.trim_start_matches('.').to_ascii_lowercase());
    let is_here = domain.is_none_or(|domain| {
        host == domain || host.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'))
    });
    // RFC 6265, 5.4: a cookie with `Secure` is sent over TLS only, so without TLS it need not be kept.
    if !is_here || cookie.secure() == Some(true) && !place.is_secure {
        return None;
    }
    // `Max-Age` takes precedence over `Expires` (RFC 6265, 5.3).
    let ends = match (cookie.max_age(), cookie.expires_datetime()) {
        (Some(age), _) if !age.is_positive() => Some(SystemTime::UNIX_EPOCH),
        // The age is beyond the range of the clock, so the cookie lasts as long as its session.
        (Some(age), _) => now.checked_add(age.unsigned_abs()),
        (None, Some(at)) if at < OffsetDateTime::UNIX_EPOCH => Some(SystemTime::UNIX_EPOCH),
        (None, at) => at.map(SystemTime::from),
    };
    let path = cookie.path().filter(|path| path.starts_with('/'));
    Some(StoredCookie {
        name: cookie.name().to_owned(),
        value: cookie.value().to_owned(),
        path: path.unwrap_or_else(|| folder(place.path)).to_owned(),
        ends,
    })
}

/// Returns the path up to its last slash (RFC 6265, section 5.1.4).
fn folder(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(end) => &path[..end],
    }
}

/// Whether a path is equal to the path of a cookie, or below it.
fn is_below(path: &str, of_cookie: &str) -> bool {
    let rest = path.strip_prefix(of_cookie);
    // RFC 6265, 5.1.4: `/a` includes `/a/b`, but not `/ab`.
    rest.is_some_and(|rest| rest.is_empty() || of_cookie.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn at(path: &str) -> CookiePlace<'_> {
        CookiePlace { host: "Up.example", path, is_secure: false }
    }

    fn sent(cookies: &SessionCookies, path: &str, now: SystemTime) -> String {
        let mut headers = HeaderMap::new();
        cookies.add_to(&mut headers, at(path), now);
        headers.get(header::COOKIE).map_or("", |value| value.to_str().unwrap()).to_owned()
    }

    fn with(set: &[&str]) -> SessionCookies {
        let cookies = SessionCookies::default();
        for one in set {
            let value = HeaderValue::from_str(one).unwrap();
            let headers = HeaderMap::from_iter([(header::SET_COOKIE, value)]);
            cookies.keep(&headers, at("/base/mcp"), NOW + Duration::from_secs(1000));
        }
        cookies
    }

    #[test]
    fn cookies_come_back_where_they_belong_and_until_they_end() {
        for (set, path, after, expected) in [
            (&["a=1"][..], "/base/mcp", 0, "a=1"),
            (&["a=1", "b=2; HttpOnly; SameSite=Lax"], "/base/other", 0, "a=1; b=2"),
            (&["a=1"], "/other", 0, ""),
            (&["a=1; Path=/"], "/other", 0, "a=1"),
            (&["a=1; Path=/base/mcp"], "/base/mcpx", 0, ""),
            (&["a=1", "a=2"], "/base/mcp", 0, "a=2"),
            (&["a=1; Max-Age=60"], "/base/mcp", 59, "a=1"),
            (&["a=1; Max-Age=60"], "/base/mcp", 60, ""),
            (&["a=1", "a=; Max-Age=0"], "/base/mcp", 0, ""),
            (&["a=1; Expires=Thu, 01 Jan 1970 00:20:00 GMT"], "/base/mcp", 199, "a=1"),
            (&["a=1; Expires=Thu, 01 Jan 1970 00:20:00 GMT"], "/base/mcp", 200, ""),
            (&["a=1; Domain=example"], "/base/mcp", 0, "a=1"),
            (&["a=1; Domain=.up.example"], "/base/mcp", 0, "a=1"),
            (&["a=1; Domain=other.example"], "/base/mcp", 0, ""),
            (&["a=1; Domain=p.example"], "/base/mcp", 0, ""),
            (&["a=1; Secure"], "/base/mcp", 0, ""),
            (&["no cookie"], "/base/mcp", 0, ""),
            (&["=1"], "/base/mcp", 0, ""),
        ] {
            let now = NOW + Duration::from_secs(1000 + after);
            assert_eq!(sent(&with(set), path, now), expected, "{set:?} {path} {after}");
        }
    }

    #[test]
    fn what_the_client_sends_counts_and_the_number_is_bounded() {
        let cookies = with(&["a=1", "b=2"]);
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("b=own; c=3"));
        cookies.add_to(&mut headers, at("/base/mcp"), NOW);
        assert_eq!(headers[header::COOKIE], "b=own; c=3; a=1");
        let many: Vec<String> = (0..60).map(|n| format!("n{n}=1")).collect();
        let many = with(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let all = sent(&many, "/base/mcp", NOW);
        assert_eq!((all.split("; ").count(), all.starts_with("n10=1")), (COOKIES_MAX, true));
        assert_eq!(sent(&with(&[&format!("a={}", "x".repeat(5000))]), "/base/mcp", NOW), "");
    }
}
