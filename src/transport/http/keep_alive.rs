//! `Keep-Alive`: how long a server promises to keep a connection.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

/// The header with which servers promise how long they keep a connection (RFC 2068, 19.7.1).
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// The `Keep-Alive` promises of the responses on one connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeepAlive {
    /// The promised time for which the connection may be idle.
    timeout: Option<Duration>,
    /// The number of requests that the connection may serve. Some servers count only those to come.
    max: Option<u32>,
    /// The number of requests that the connection has served.
    served: u32,
}

impl KeepAlive {
    /// Notes the promise in the head of a response.
    pub(crate) fn note_response(&mut self, headers: &HeaderMap) {
        self.served = self.served.saturating_add(1);
        let values = headers.get_all(KEEP_ALIVE).iter().filter_map(|value| value.to_str().ok());
        for (name, value) in values.flat_map(|value| value.split(',')).filter_map(parameter) {
            if name.eq_ignore_ascii_case("timeout") {
                self.timeout = Some(Duration::from_secs(u64::from(value)));
            } else if name.eq_ignore_ascii_case("max") {
                self.max = Some(value);
            }
        }
    }

    /// Returns the longest time for which the connection may be idle before its next request; `None` if the server
    /// promised nothing. It is half of the promise, because the server counts from its last byte, and the request has
    /// to arrive in time.
    pub(crate) fn idle_max(&self) -> Option<Duration> {
        if self.max.is_some_and(|max| max <= self.served) {
            return Some(Duration::ZERO);
        }
        self.timeout.map(|timeout| timeout / 2)
    }
}

/// Returns the name and number of a parameter such as `timeout=5`.
fn parameter(text: &str) -> Option<(&str, u32)> {
    let (name, value) = text.split_once('=')?;
    Some((name.trim(), value.trim().trim_matches('"').parse().ok()?))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn promised(values: &[&'static str]) -> KeepAlive {
        let mut promised = KeepAlive::default();
        for value in values {
            let mut headers = HeaderMap::new();
            headers.insert(KEEP_ALIVE, HeaderValue::from_static(value));
            promised.note_response(&headers);
        }
        promised
    }

    #[test]
    fn a_connection_is_kept_for_half_of_the_promised_time() {
        for (value, millis) in [
            ("timeout=1", 500),
            ("timeout=0", 0),
            ("max=100, Timeout = 4", 2000),
            ("timeout=\"2\"", 1000),
            ("timeout=5", 2500),
            ("timeout=600", 300_000),
        ] {
            let half = Duration::from_millis(millis);
            assert_eq!(promised(&[value]).idle_max(), Some(half), "{value}");
        }
        for value in ["timeout=-1", "timeout", "timeout=99999999999999999999", "", "=", ",,"] {
            assert_eq!(promised(&[value]).idle_max(), None, "{value}");
        }
    }

    #[test]
    fn a_connection_serves_as_many_requests_as_promised() {
        let ends = |values: &[&'static str]| promised(values).idle_max() == Some(Duration::ZERO);
        assert!(ends(&["max=0"]) && ends(&["max=1"]));
        assert!(!ends(&["max=2"]) && ends(&["max=2", "max=2"]));
        assert!(!ends(&["max=4", "max=3"]) && ends(&["max=4", "max=3", "max=2"]));
    }
}
