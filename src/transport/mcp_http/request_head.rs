//! The parts of a request's head that are kept while the request is answered; the headers themselves are sent to the
//! server.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};

use crate::protocol::mcp::Revision;
use crate::transport::mcp_http::header_names::{LAST_EVENT_ID, REVISION, SESSION_ID};

/// The time without a byte after which a client that accepts JSON of any length, but no long events, gets a stream
/// after all, because it would otherwise give up.
pub(crate) const LATE_UPGRADE: Duration = Duration::from_secs(240);

/// The parts of a request's head that are needed after the head was forwarded.
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) session: Option<HeaderValue>,
    pub(crate) origin: Option<HeaderValue>,
    /// The number of the caller, if the request has no session.
    pub(crate) caller: u64,
    /// Whether the client names a revision; `revision` is the one that it names.
    pub(crate) names_revision: bool,
    pub(crate) revision: Option<Revision>,
    /// Whether the client's `Accept` names events.
    pub(crate) reads_events: bool,
    /// Whether the client reads JSON. A client without `Accept` reads JSON.
    pub(crate) reads_json: bool,
    /// Whether the client refuses events of a length that it accepts in a JSON answer.
    pub(crate) limits_events: bool,
    /// The id of the event after which the client resumes a stream.
    pub(crate) last_event: Option<HeaderValue>,
}

impl RequestHead {
    pub(crate) fn of(caller: u64, parts: &Parts) -> Self {
        let headers = &parts.headers;
        let date = headers.get(REVISION);
        let [reads_events, reads_json] = reads(headers);
        Self {
            method: parts.method.clone(),
            session: headers.get(SESSION_ID).cloned(),
            origin: headers.get(header::ORIGIN).cloned(),
            caller,
            names_revision: date.is_some(),
            revision: date.and_then(|date| date.to_str().ok()).and_then(Revision::from_date),
            reads_events,
            reads_json,
            limits_events: limits_events(headers),
            last_event: headers.get(LAST_EVENT_ID).cloned(),
        }
    }

    /// Returns the bytes of the session's id.
    pub(crate) fn session_id(&self) -> Option<&[u8]> {
        self.session.as_ref().map(HeaderValue::as_bytes)
    }

    /// Returns the id of the event after which the client resumes a stream. An empty id names no event: a stream that
    /// begins with it is a new stream.
    pub(crate) fn last_event_id(&self) -> Option<&[u8]> {
        self.last_event.as_ref().map(HeaderValue::as_bytes).filter(|id| !id.is_empty())
    }
}

/// Whether the client is the Python SDK from 2.3 on, which accepts JSON of any length, but events of at most 1 MiB.
fn limits_events(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).map(HeaderValue::as_bytes);
    agent.is_some_and(|agent| agent.starts_with(b"python-httpx2"))
}

/// Whether the client of a GET accepts events. A request for an image does not, so it cannot start a server.
pub(crate) fn takes_events(headers: &HeaderMap) -> bool {
    let types: &[&str] = &["text/event-stream", "text/*", "*/*"];
    !headers.contains_key(header::ACCEPT) || accepts(headers, [types]) == [true]
}

/// Whether the client of a POST reads events, and whether it reads JSON.
fn reads(headers: &HeaderMap) -> [bool; 2] {
    let mut lines = headers.get_all(header::ACCEPT).iter();
    // The quick path: nearly all clients write exactly this value.
    if let (Some(line), None) = (lines.next(), lines.next())
        && line == "application/json, text/event-stream"
    {
        return [true; 2];
    }
    let events: &[&str] = &["text/event-stream"];
    accepts(headers, [events, &["application/json", "application/*", "*/*"]])
}

/// Returns for each of these sets whether the client accepts one of its types.
fn accepts<const N: usize>(headers: &HeaderMap, sets: [&[&str]; N]) -> [bool; N] {
    let mut found = [false; N];
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in accepted.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let named = parts.next().unwrap_or_default();
        // RFC 9110, 12.4.2: a weight of 0 means "not acceptable".
        let weight = |part: &str| part.split_once('=')?.1.trim().parse::<f64>().ok();
        let is_weight = |part: &&str| part.starts_with(['q', 'Q']);
        if parts.filter(is_weight).any(|part| weight(part) == Some(0.0)) {
            continue;
        }
        for (found, names) in found.iter_mut().zip(sets) {
            *found |= names.iter().any(|name| name.eq_ignore_ascii_case(named));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &[&str], reads: bool) {
        let mut headers = HeaderMap::new();
        for line in accept {
            headers.append(header::ACCEPT, line.parse().unwrap());
        }
        let events: &[&str] = &["text/event-stream"];
        assert_eq!(accepts(&headers, [events]), [reads], "{accept:?}");
    }

    #[test]
    fn a_client_reads_events_if_it_says_so() {
        check(&["application/json, text/event-stream"], true);
        check(&["application/json", "text/event-stream"], true);
        check(&["TEXT/EVENT-STREAM;q=0.5"], true);
        check(&["text/event-stream; q=0"], false);
        check(&["text/event-stream;q=0.000"], false);
        check(&["*/*"], false);
        check(&["application/json"], false);
        check(&[], false);
    }
}
