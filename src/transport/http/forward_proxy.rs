//! A forward proxy on the way to a server: which proxy is used, and the tunnel through it.

use std::fmt;
use std::future::poll_fn;
use std::io;

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;
use url::Url;

use super::http1::link::Http1Link;
use super::http1::link_error::LinkError;
use super::io::Io;
use super::proxy_variables::ProxyVariable;
use super::request_body::RequestBody;
use super::tls::{self, ClientTlsError, TlsPeer};
use crate::config::routes::{Authorities, Environment};
use crate::config::values::proxy_url::{ProxyChoice, ProxyUrl};
use crate::observe::metrics::ServerNotice;

/// A forward proxy.
pub(crate) struct ForwardProxy {
    pub(super) url: ProxyUrl,
    /// TLS towards the proxy itself.
    pub(super) tls: Option<TlsPeer>,
}

impl ForwardProxy {
    /// Returns the proxy at a URL. `trusted` are the certificate authorities for a proxy that uses TLS, and `setting`
    /// is the name of the setting with these authorities.
    ///
    /// # Errors
    /// If TLS towards the proxy cannot be set up.
    pub(crate) fn new(
        url: ProxyUrl,
        trusted: &Authorities,
        setting: &'static str,
    ) -> Result<Self, ClientTlsError> {
        let tls = match ServerName::try_from(url.host.clone()) {
            // The name is only needed for TLS, so without TLS any name is accepted.
            _ if !url.is_tls => None,
            Ok(name) => {
                Some(TlsPeer { connector: tls::connector(trusted, None, &[])?, name, setting })
            }
            Err(_) => {
                let what = "no certificate can have the name of the proxy".to_owned();
                return Err(rustls::Error::General(what).into());
            }
        };
        Ok(Self { url, tls })
    }

    /// Returns the error for a proxy that refuses a connection to the server `to`.
    pub(super) fn refusal(&self, to: String, status: StatusCode) -> ProxyRefusal {
        let has_credentials = self.url.authorization.is_some();
        ProxyRefusal { proxy: self.url.to_string(), to, status, has_credentials }
    }
}

/// Whether a proxy is used for a server.
pub(crate) enum ProxyDecision {
    /// No proxy: none is named, or the route wants none.
    Direct,
    /// A proxy, and the name of the setting or variable with its URL.
    Through(ProxyUrl, &'static str),
    /// No proxy, because the server is on this machine; with the variable that names one.
    Local(&'static str),
    /// No proxy, although this variable names one; with the reason.
    Unused(&'static str, String),
}

impl ProxyDecision {
    /// Returns the decision for the server at `url`: the proxy of its route, else that of the environment.
    pub(crate) fn of(choice: Option<&ProxyChoice>, environment: &Environment, url: &Url) -> Self {
        match choice {
            Some(ProxyChoice::Direct) => Self::Direct,
            Some(ProxyChoice::Through(proxy)) => Self::Through(proxy.clone(), "upstream.proxy"),
            // The route's own setting takes precedence over the environment, like every setting.
            None => match ProxyVariable::of(environment, url) {
                ProxyVariable::Unset => Self::Direct,
                ProxyVariable::Used(proxy, variable) => Self::Through(proxy, variable),
                ProxyVariable::Local(variable) => Self::Local(variable),
                ProxyVariable::Unused(variable, why) => Self::Unused(variable, why),
            },
        }
    }

    /// Logs the proxy, or that a proxy of the environment is not used. `route` is the route of the server at `url`.
    pub(crate) fn log(&self, route: &str, url: &Url) {
        let server = url.origin().ascii_serialization();
        match self {
            Self::Direct => {}
            Self::Through(proxy, named_by) => {
                let proxy = proxy.to_string();
                tracing::warn!(
                    route,
                    server,
                    proxy,
                    named_by,
                    "connections to the server go through a proxy"
                );
            }
            // This case is usual on a developer's machine, so it is not a warning.
            Self::Local(variable) => tracing::info!(
                route,
                server,
                variable,
                "a server on this machine has no proxy of the environment; `upstream.proxy` names one all the same"
            ),
            Self::Unused(variable, why) => tracing::warn!(
                route,
                server,
                variable,
                why,
                "the proxy of the environment is not used: connections go to the server directly"
            ),
        }
    }

    /// Returns the proxy, if one is used.
    pub(crate) fn proxy(self) -> Option<ProxyUrl> {
        match self {
            Self::Through(proxy, _) => Some(proxy),
            Self::Direct | Self::Local(_) | Self::Unused(..) => None,
        }
    }

    /// Returns the notice about the decision, for the metrics of a route.
    pub(crate) fn notice(&self) -> Option<ServerNotice> {
        match self {
            Self::Direct => None,
            Self::Through(..) => Some(ServerNotice::Proxy),
            Self::Local(_) | Self::Unused(..) => Some(ServerNotice::ProxyUnused),
        }
    }
}

/// The reason why no tunnel was made.
#[derive(Debug)]
pub(super) enum TunnelError {
    /// The connection to the proxy failed, or the answer of the proxy is not HTTP.
    Io(io::Error),
    /// The proxy answers with this status.
    Refused(StatusCode),
}

impl From<io::Error> for TunnelError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<TunnelError> for io::Error {
    fn from(error: TunnelError) -> Self {
        match error {
            TunnelError::Io(error) => error,
            TunnelError::Refused(status) => Self::other(format!("the proxy answers {status}")),
        }
    }
}

impl From<LinkError> for TunnelError {
    fn from(error: LinkError) -> Self {
        Self::Io(match error {
            LinkError::Io(error) => error,
            other => io::Error::other(format!("the proxy does not answer in HTTP: {other}")),
        })
    }
}

/// The error for a proxy that refuses a connection.
#[derive(Debug)]
pub struct ProxyRefusal {
    /// The URL of the proxy, without credentials.
    proxy: String,
    /// Host and port of the server.
    to: String,
    /// The status of the proxy's answer.
    pub(super) status: StatusCode,
    /// Whether the URL of the proxy has credentials.
    has_credentials: bool,
}

impl fmt::Display for ProxyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { proxy, to, status, has_credentials } = self;
        write!(f, "the proxy {proxy} refuses the way to {to}: it answers {status}")?;
        match (*status, has_credentials) {
            (StatusCode::PROXY_AUTHENTICATION_REQUIRED, true) => {
                f.write_str(" and does not accept the credentials in its URL")
            }
            (StatusCode::PROXY_AUTHENTICATION_REQUIRED, false) => {
                f.write_str("; write its credentials into its URL: http://USER:PASSWORD@HOST:PORT")
            }
            _ => Ok(()),
        }
    }
}

/// Asks a proxy for a tunnel to `server` (`host:port`), and returns the connection, which is from then on connected to
/// the server (RFC 9110, 9.3.6).
///
/// # Errors
/// If the proxy refuses, or does not answer in HTTP.
pub(super) async fn tunnel(
    io: Io,
    server: &str,
    authorization: Option<&HeaderValue>,
) -> Result<Io, TunnelError> {
    let mut link = Http1Link::new(io);
    link.begin(connect_request(server, authorization)?);
    let (answer, behind) = poll_fn(|cx| link.poll_head(cx)).await?;
    if !answer.status().is_success() {
        return Err(TunnelError::Refused(answer.status()));
    }
    // The server has received no byte yet, so these bytes come from the proxy. Later they would be taken for bytes of
    // the server.
    if !behind.is_empty() {
        let what = "the proxy sent bytes behind its answer, before the server could";
        return Err(TunnelError::Io(io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    Ok(link.into_io())
}

fn connect_request(
    server: &str,
    authorization: Option<&HeaderValue>,
) -> Result<Request<RequestBody>, TunnelError> {
    let wrong =
        |error: http::Error| TunnelError::Io(io::Error::new(io::ErrorKind::InvalidInput, error));
    let mut request = Request::new(RequestBody::empty());
    *request.method_mut() = Method::CONNECT;
    // RFC 9112, 3.2.3: the target of CONNECT is only a host and a port.
    *request.uri_mut() = Uri::try_from(server).map_err(|error| wrong(error.into()))?;
    let host = HeaderValue::from_str(server).map_err(|error| wrong(error.into()))?;
    request.headers_mut().insert(HOST, host);
    if let Some(authorization) = authorization {
        request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Opens a tunnel through a proxy that gives this answer. Returns the request, the result, and the bytes that
    /// passed through the tunnel.
    async fn ask(answer: &str, authorization: Option<&str>) -> (String, Result<String, String>) {
        let (ours, mut theirs) = duplex(128 << 10);
        let authorization = authorization.map(|value| HeaderValue::from_str(value).unwrap());
        let proxy = async {
            let (mut asked, mut byte) = (Vec::new(), [0]);
            while !asked.ends_with(b"\r\n\r\n") {
                theirs.read_exact(&mut byte).await.unwrap();
                asked.extend_from_slice(&byte);
            }
            theirs.write_all(answer.as_bytes()).await.unwrap();
            if answer.is_empty() {
                theirs.shutdown().await.unwrap();
            }
            (String::from_utf8(asked).unwrap(), theirs)
        };
        let open = tunnel(Box::new(ours), "mcp.example:443", authorization.as_ref());
        let ((asked, mut theirs), opened) = tokio::join!(proxy, open);
        let result = match opened {
            Err(TunnelError::Io(error)) => Err(error.to_string()),
            Err(TunnelError::Refused(status)) => Err(status.to_string()),
            Ok(mut io) => {
                theirs.write_all(b"hello").await.unwrap();
                let mut bytes = [0; 5];
                io.read_exact(&mut bytes).await.unwrap();
                Ok(String::from_utf8(bytes.to_vec()).unwrap())
            }
        };
        (asked, result)
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_is_asked_for_with_the_credentials() {
        let (asked, opened) = ask("HTTP/1.1 200 Connection established\r\n\r\n", None).await;
        assert_eq!(asked, "CONNECT mcp.example:443 HTTP/1.1\r\nhost: mcp.example:443\r\n\r\n");
        assert_eq!(opened.as_deref(), Ok("hello"));
        let (asked, _) = ask("HTTP/1.1 200 OK\r\n\r\n", Some("Basic YTpi")).await;
        assert!(asked.contains("\r\nproxy-authorization: Basic YTpi\r\n"), "{asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn each_status_of_success_opens_a_tunnel_whatever_the_headers_say() {
        for answer in [
            "HTTP/1.0 200 Connection established\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nVia: 1.1 squid\r\n\r\n",
            // The length in the answer to an accepted CONNECT has no meaning (RFC 9110, 9.3.6).
            "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert_eq!(ask(answer, None).await.1.as_deref(), Ok("hello"), "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_tunnel_is_an_error() {
        for (answer, why) in [
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nforbidden", "403 Forbidden"),
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
                "407 Proxy Authentication Required",
            ),
            (
                "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 900\r\n\r\nx",
                "503 Service Unavailable",
            ),
            ("HTTP/1.1 301 Moved\r\nLocation: http://x/\r\n\r\n", "301 Moved Permanently"),
            ("", "the proxy does not answer in HTTP"),
            ("SSH-2.0-OpenSSH_9\r\n\r\n", "the proxy does not answer in HTTP"),
            ("HTTP/1.1 200 OK\r\n\r\nbytes", "bytes behind its answer"),
        ] {
            let error = ask(answer, None).await.1.unwrap_err();
            assert!(error.contains(why), "{answer}: {error}");
        }
        // A proxy that writes an endless head must not fill the memory.
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(64 << 10));
        assert!(ask(&long, None).await.1.is_err());
    }

    #[test]
    fn a_refusal_for_want_of_credentials_says_where_to_write_them() {
        let told = |url: &str, status| {
            let url = ProxyUrl::read(url).unwrap();
            let proxy = ForwardProxy::new(url, &Authorities::default(), "").unwrap();
            proxy.refusal("mcp.example:443".to_owned(), status).to_string()
        };
        let required = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        let none = told("http://proxy:1", required);
        assert!(none.contains("write its credentials into its URL"), "{none}");
        let wrong = told("http://a:c4n4ry@proxy:1", required);
        assert!(wrong.contains("does not accept the credentials"), "{wrong}");
        assert_eq!(
            told("http://a:c4n4ry@proxy:1", StatusCode::FORBIDDEN),
            "the proxy http://proxy:1 refuses the way to mcp.example:443: it answers 403 Forbidden"
        );
    }
}
