//! Responses in which Milepost itself refuses a request: the reason, the status and the text.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;

use crate::protocol::json;
use crate::protocol::jsonrpc::{INTERNAL_ERROR, INVALID_REQUEST};

/// Why Milepost answers a request itself and does not forward it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The request names no host.
    NoHost,
    /// The request names two hosts.
    TwoHosts,
    /// The request's host is not accepted by this listener.
    Host,
    /// The request's origin is not accepted by this listener.
    Origin,
    /// A browser marks the request as coming from another site's page, and the request names no origin.
    CrossSite,
    /// A page of any site can send a body of this type without asking the listener first.
    BodyType,
    /// A header that decides about the request occurs more than once.
    Twice(&'static str),
    /// The header that names the user of a front occurs twice, or its value is not a name.
    Principal,
    /// The request's target is neither a path nor `http://host/path`.
    Target,
    /// The method is `CONNECT` or `TRACE`.
    Method,
    /// The address only supports reading.
    ReadOnly,
    /// The request asks for another protocol, such as WebSocket.
    Upgrade,
    /// The request's head is too large.
    HeadTooLarge,
    /// The request has passed through this proxy before.
    Loop,
    /// The request has passed through too many proxies.
    TooManyHops,
    /// The request does not have the listener's token.
    Unauthorized,
    /// The request comes from another machine, but no token for operators is set.
    OperatorsOnly,
    /// The request would change something, and may come from a page of another origin.
    ForeignChange,
    /// The path has no route.
    NoRoute,
    /// The admin listener has no page with this path.
    NoPage,
    /// A request at the fleet's address was not passed on by another replica.
    NotPassedOn,
    /// More connections are open than the listener serves.
    Busy,
    /// Milepost itself has failed.
    Fault,
}

impl Refusal {
    /// Every refusal once.
    pub const ALL: [Self; 23] = [
        Self::NoHost,
        Self::TwoHosts,
        Self::Host,
        Self::Origin,
        Self::CrossSite,
        Self::BodyType,
        Self::Twice("host"),
        Self::Principal,
        Self::Target,
        Self::Method,
        Self::ReadOnly,
        Self::Upgrade,
        Self::HeadTooLarge,
        Self::Loop,
        Self::TooManyHops,
        Self::Unauthorized,
        Self::OperatorsOnly,
        Self::ForeignChange,
        Self::NoRoute,
        Self::NoPage,
        Self::NotPassedOn,
        Self::Busy,
        Self::Fault,
    ];

    /// Returns the status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NoHost | Self::TwoHosts | Self::Twice(_) | Self::Principal | Self::Target => {
                StatusCode::BAD_REQUEST
            }
            Self::Host
            | Self::Origin
            | Self::CrossSite
            | Self::OperatorsOnly
            | Self::NotPassedOn
            | Self::ForeignChange => StatusCode::FORBIDDEN,
            Self::BodyType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Method | Self::ReadOnly => StatusCode::METHOD_NOT_ALLOWED,
            Self::Upgrade => StatusCode::NOT_IMPLEMENTED,
            // RFC 6585, 5: the status for headers that are too large.
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            // RFC 5842, 7.2: the status for a request that would be forwarded in a loop.
            Self::Loop | Self::TooManyHops => StatusCode::LOOP_DETECTED,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NoRoute | Self::NoPage => StatusCode::NOT_FOUND,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Fault => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the name for logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoHost => "no-host",
            Self::TwoHosts => "two-hosts",
            Self::Host => "host",
            Self::Origin => "origin",
            Self::CrossSite => "cross-site",
            Self::BodyType => "body-type",
            Self::Twice(_) => "header-twice",
            Self::Principal => "principal",
            Self::Target => "target",
            Self::Method => "method",
            Self::ReadOnly => "read-only",
            Self::Upgrade => "upgrade",
            Self::HeadTooLarge => "head-too-large",
            Self::Loop => "loop",
            Self::TooManyHops => "too-many-hops",
            Self::Unauthorized => "unauthorized",
            Self::OperatorsOnly => "operators-only",
            Self::ForeignChange => "foreign-change",
            Self::NoRoute => "no-route",
            Self::NoPage => "no-page",
            Self::NotPassedOn => "not-passed-on",
            Self::Busy => "busy",
            Self::Fault => "fault",
        }
    }

    /// Returns what is wrong and what is expected. The text repeats nothing of the request.
    pub fn text(self) -> String {
        let text = match self {
            Self::NoHost => "this request names no host; send a Host header",
            Self::TwoHosts => "this request names two different hosts; send one",
            Self::Host => {
                "the Host of this request is not one that this proxy answers to; use the address \
                 it listens on, or add the name to allowed_hosts in [server]"
            }
            Self::Origin => {
                "the Origin of this request may not use this proxy; if it should, add it to \
                 allowed_origins in [server]"
            }
            Self::CrossSite => {
                "a page of another site sent this request; use a program, or a page whose Origin is in \
                 allowed_origins in [server]"
            }
            Self::BodyType => {
                "the body of this request has no type or a type of forms; send Content-Type: \
                 application/json"
            }
            Self::Twice(name) => return format!("this request has {name} twice; send it once"),
            Self::Principal => {
                "the header that names the user occurs twice or has no name of at most 1 KiB; let the front \
                 replace it (principal in [server])"
            }
            Self::Target => "the target of this request is not a path; send one such as /name",
            Self::Method => "this method is not served; MCP uses POST, GET and DELETE",
            Self::ReadOnly => "this can only be read; use GET",
            Self::Upgrade => {
                "this proxy does not switch to this protocol; use Streamable HTTP or HTTP+SSE"
            }
            Self::HeadTooLarge => {
                "the headers of this request are too large; send fewer, or raise \
                 max_header_bytes in [server]"
            }
            Self::Loop => {
                "this request has passed this proxy before; the upstream of a route leads back to \
                 the proxy"
            }
            Self::TooManyHops => "this request has passed too many proxies; they may form a loop",
            Self::Unauthorized => {
                "this proxy asks for a token; send Authorization: Bearer with the one it was given"
            }
            Self::OperatorsOnly => {
                "this is not shown to other machines; set bearer in [admin], and send it as \
                 Authorization: Bearer"
            }
            Self::ForeignChange => {
                "this would change something; send the header `milepost-admin: 1` with it, and no \
                 Origin of another page"
            }
            Self::NoRoute => "no route is here; use the path of one, as the operator named it",
            Self::NoPage => {
                "no page is here; there are /, /livez, /readyz, /metrics, /calls, /tap, /about and /log-level"
            }
            Self::NotPassedOn => {
                "this address is for the other replicas of this proxy; use the address for clients"
            }
            Self::Busy => {
                "this proxy has as many connections open as it serves; try again soon, or raise \
                 max_connections in [server]"
            }
            Self::Fault => "this proxy has failed at this request; please report it with its log",
        };
        text.to_owned()
    }

    /// Returns the response: a JSON-RPC error without an id for a POST, which clients read, and plain text for other
    /// methods, for people and browsers.
    pub fn response(self, method: &Method) -> Response<Full<Bytes>> {
        let (kind, body) = if *method == Method::POST {
            ("application/json", self.json())
        } else {
            ("text/plain; charset=utf-8", format!("milepost: {}\n", self.text()).into_bytes())
        };
        let mut response = Response::new(Full::new(body.into()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        // Required by RFC 9110: `WWW-Authenticate` with 401 (15.5.2), `Allow` with 405 (15.5.6).
        let header = match self {
            Self::Unauthorized => Some((WWW_AUTHENTICATE, "Bearer")),
            Self::Method => Some((ALLOW, "GET, HEAD, POST, DELETE, OPTIONS")),
            Self::ReadOnly => Some((ALLOW, "GET, HEAD")),
            Self::Busy => Some((RETRY_AFTER, "1")),
            _ => None,
        };
        if let Some((name, value)) = header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    fn json(self) -> Vec<u8> {
        let code = if self.status().is_client_error() { INVALID_REQUEST } else { INTERNAL_ERROR };
        let head = format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":"#);
        let tail = format!(r#","data":{{"proxy":"milepost","reason":"{}"}}}}}}"#, self.name());
        [head.as_bytes(), &json::quote(&self.text()), tail.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_refusal_has_a_name_of_its_own_and_says_what_would_be_right() {
        let names: BTreeSet<_> = Refusal::ALL.iter().map(|refusal| refusal.name()).collect();
        assert_eq!(names.len(), Refusal::ALL.len());
        for refusal in Refusal::ALL {
            let text = refusal.text();
            assert!(text.contains(';') && !text.ends_with('.'), "{text}");
            assert!(!refusal.status().is_success() && !refusal.status().is_redirection());
        }
    }

    #[test]
    fn a_post_is_answered_in_json_rpc_and_everything_else_in_plain_words() {
        let json: serde_json::Value = serde_json::from_slice(&Refusal::Origin.json()).unwrap();
        assert_eq!(json["error"]["code"], -32600);
        assert_eq!(json["error"]["data"]["proxy"], "milepost");
        assert_eq!(json["error"]["data"]["reason"], "origin");
        assert!(json.get("id").is_none());
        let kind = |method| {
            let response = Refusal::Unauthorized.response(&method);
            assert_eq!(response.headers()[WWW_AUTHENTICATE], "Bearer");
            response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned()
        };
        assert_eq!(kind(Method::POST), "application/json");
        assert_eq!(kind(Method::GET), "text/plain; charset=utf-8");
    }
}
