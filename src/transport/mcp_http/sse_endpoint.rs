//! Reads the endpoint that an HTTP+SSE server names in its first event.

use http::uri::PathAndQuery;
use url::{Position, Url};

/// Returns the path of an endpoint, if the endpoint is on the same server as the stream.
pub(crate) fn same_origin(stream: &Url, named: &[u8]) -> Option<PathAndQuery> {
    let url = stream.join(std::str::from_utf8(named).ok()?.trim()).ok()?;
    // POSTs to this address contain the tokens of clients, which only the server of the stream may get.
    let same = url.scheme() == stream.scheme()
        && url.host() == stream.host()
        && url.port_or_known_default() == stream.port_or_known_default();
    url[Position::BeforePath..Position::AfterQuery].parse().ok().filter(|_| same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(named: &str, on_server: Option<&str>) {
        let stream = Url::parse("http://127.0.0.1:9000/base/sse").unwrap();
        let found = same_origin(&stream, named.as_bytes());
        assert_eq!(found.map(|path| path.to_string()).as_deref(), on_server, "{named}");
    }

    #[test]
    fn an_endpoint_is_of_the_streams_own_origin() {
        check("/messages/?session_id=a", Some("/messages/?session_id=a"));
        check("messages?x=1", Some("/base/messages?x=1"));
        check("?sessionId=a", Some("/base/sse?sessionId=a"));
        check("http://127.0.0.1:9000/messages?sid=a", Some("/messages?sid=a"));
        check("http://169.254.169.254/", None);
        check("//evil.example/x", None);
        check("https://127.0.0.1:9000/messages", None);
        check("http://127.0.0.1:9001/messages", None);
        check("javascript:alert(1)", None);
    }
}
