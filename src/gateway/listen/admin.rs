//! The admin listener: `/livez`, `/readyz`, `/metrics`, `/about`, `/calls`, `/calls/N/cancel`, `/tap`,
//! `/log-level` and the live page.
//!
//! Probes are answered for every client, and so is the page, which holds no data. All other paths
//! need the `bearer` of `[admin]`, or the token that Milepost made; `/metrics` needs only a `bearer`.
//! Without a token they answer over loopback only.

mod access;
mod cancel;
mod page;
mod streams;
mod token;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use access::Access;
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use tokio::time::timeout;

use super::handler::{Handler, Peer};
use super::listener::ListenPhase;
use crate::config::routes::{Admin, Server};
use crate::gateway::listen::admission::{admit, admit_page};
use crate::observe::calls::{PATH_OF_TAP, Table};
use crate::observe::log;
use crate::observe::log::FilterError;
use crate::observe::metrics::TextFormat;
use crate::observe::printable::printable_json;
use crate::transport::http::refusal::Refusal;
use crate::transport::http::via::Via;

pub use access::{TOKEN_FILE, own_address};
pub(super) use cancel::{call_to_cancel, cancel, only_post};
pub use streams::ROUTES_WATCHED;
pub(super) use streams::{AdminBody, AdminStreams, JSON};
pub use token::AdminToken;

/// Limit of the connections to the admin listener. If one more arrives, the connection that was idle for longest is
/// closed.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// Limit of the bytes of a request head on the admin listener. A longer head is refused.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Limit of the bytes of a request body on the admin listener (a log filter, a reason). A longer body is refused.
const BODY_BYTES_MAX: usize = 4 << 10;

/// Deadline for the body of a request to arrive.
const BODY: Duration = Duration::from_secs(5);

/// The header that a request must have to change something. A page of another site can send it only after a preflight
/// request, which the listener never allows.
pub const ADMIN_CHANGES: HeaderName = HeaderName::from_static("milepost-admin");

const PLAIN: &str = "text/plain; charset=utf-8";

type AdminResponse = Response<AdminBody>;

/// Answers the requests of operators.
pub(super) struct AdminApi<H> {
    access: ArcSwap<Access>,
    /// The directory of the token that Milepost makes.
    state: Option<PathBuf>,
    via: Via,
    handler: Arc<H>,
    streams: AdminStreams,
    /// The scheme and the address of the listener for clients.
    clients: Option<(Scheme, SocketAddr)>,
}

/// What the live page shows about the listener for clients.
#[derive(Serialize)]
struct AboutClients {
    /// The URL to which the paths of routes are appended; `null` without a listener for clients.
    address: Option<String>,
    version: &'static str,
}

impl<H: Handler> AdminApi<H> {
    pub(super) fn new(
        server: &Server,
        admin: &Admin,
        state: Option<&Path>,
        via: Via,
        handler: Arc<H>,
    ) -> Self {
        let access = ArcSwap::from_pointee(Access::new(server, admin, state));
        let (state, streams) = (state.map(Path::to_owned), AdminStreams::default());
        Self { access, state, via, handler, streams, clients: None }
    }

    /// The same, with the scheme and the address of the listener for clients.
    pub(super) fn knowing(self, scheme: Scheme, clients: Option<SocketAddr>) -> Self {
        Self { clients: clients.map(|address| (scheme, address)), ..self }
    }

    fn about(&self, server: &Server) -> AboutClients {
        let address = self.clients.as_ref().map(|(scheme, address)| match &server.public_url {
            Some(url) => url.to_string().trim_end_matches('/').to_owned(),
            None => format!("{scheme}://{}", own_address(*address)),
        });
        AboutClients { address, version: env!("CARGO_PKG_VERSION") }
    }

    /// See [`Access::start_link`].
    pub(super) fn start_link(&self, listen: SocketAddr) -> String {
        self.access.load().start_link(listen)
    }

    /// See [`Access::secret_start_link`].
    pub(super) fn secret_start_link(&self, listen: SocketAddr) -> String {
        self.access.load().secret_start_link(listen)
    }

    /// Returns the file of the token that Milepost made.
    pub(super) fn token_file(&self) -> Option<PathBuf> {
        self.access.load().token_file()
    }

    /// Ends the endless streams of observers.
    pub(super) fn end_streams(&self) {
        self.streams.end();
    }

    /// Applies new settings to later requests.
    pub(super) fn set_config(&self, server: &Server, admin: &Admin) {
        self.access.store(Arc::new(Access::new(server, admin, self.state.as_deref())));
    }

    /// Answers one request of an operator.
    pub(super) async fn answer<B>(
        &self,
        client: Peer,
        phase: ListenPhase,
        request: Request<B>,
    ) -> AdminResponse
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
    {
        let (parts, body) = request.into_parts();
        let answer = match self.course(&client, phase, &parts) {
            Ok(AdminDecision::Answered(answer)) => answer,
            Ok(AdminDecision::Change) => change(body).await,
            Ok(AdminDecision::Cancel(calls, number)) => {
                let by = client.remote.ip().to_canonical().to_string();
                cancel(&calls, &number, &by, body).await
            }
            Err(refusal) => {
                self.handler.count_refusal(refusal);
                return self.access.load().refuse(refusal, &client, &parts);
            }
        };
        let (mut head, body) = answer.into_parts();
        head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Response::from_parts(head, body)
    }

    fn course(
        &self,
        client: &Peer,
        phase: ListenPhase,
        parts: &Parts,
    ) -> Result<AdminDecision, Refusal> {
        let access = self.access.load();
        admit(&access.server, &self.via, client.local, parts)?;
        if !opens_page(parts) {
            admit_page(&access.server, parts)?;
        }
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let read = |status, text: &str| {
            if reads {
                Ok(AdminDecision::Answered(plain(status, text)))
            } else {
                Err(Refusal::ReadOnly)
            }
        };
        match parts.uri.path() {
            "/livez" => read(StatusCode::OK, "alive\n"),
            "/readyz" if phase == ListenPhase::Serving => read(StatusCode::OK, "ready\n"),
            // With 503 a front may consider the server dead and cut its open requests, so the probe can ask for 404.
            "/readyz" if asks_for_404(parts) => read(StatusCode::NOT_FOUND, "stopping\n"),
            "/readyz" => read(StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
            "/" if reads => Ok(AdminDecision::Answered(live_page())),
            "/" => Err(Refusal::ReadOnly),
            "/metrics" => {
                access.authorize_metrics(client, &parts.headers)?;
                let text = self.handler.metrics().ok_or(Refusal::NoPage)?;
                if !reads {
                    return Err(Refusal::ReadOnly);
                }
                let format = TextFormat::asked_for(&parts.headers);
                let answer = typed(StatusCode::OK, format.content_type(), format.of(text));
                Ok(AdminDecision::Answered(answer))
            }
            path if let Some(number) = call_to_cancel(path) => {
                access.authorize(client, &parts.headers)?;
                self.cancellation(parts, number)
            }
            path if path == PATH_OF_TAP || path == "/calls" || path.starts_with("/calls/") => {
                access.authorize(client, &parts.headers)?;
                let calls = self.handler.calls().ok_or(Refusal::NoPage)?;
                if !reads {
                    return Err(Refusal::ReadOnly);
                }
                let answer = self.streams.answer(calls, client.last_use.as_ref(), parts);
                Ok(AdminDecision::Answered(answer))
            }
            "/about" => {
                access.authorize(client, &parts.headers)?;
                if !reads {
                    return Err(Refusal::ReadOnly);
                }
                let about = printable_json(&self.about(&access.server));
                Ok(AdminDecision::Answered(typed(StatusCode::OK, JSON, about)))
            }
            "/log-level" => {
                access.authorize(client, &parts.headers)?;
                match parts.method {
                    Method::GET | Method::HEAD => Ok(AdminDecision::Answered(log_level())),
                    Method::PUT | Method::DELETE if !is_our_own(parts) => {
                        Err(Refusal::ForeignChange)
                    }
                    Method::PUT => Ok(AdminDecision::Change),
                    Method::DELETE => {
                        let _ = log::reset_filter();
                        Ok(AdminDecision::Answered(log_level()))
                    }
                    _ => Ok(AdminDecision::Answered(no_method())),
                }
            }
            _ => Err(Refusal::NoPage),
        }
    }

    /// Returns the decision about a request to cancel the call with this number.
    fn cancellation(&self, parts: &Parts, number: &str) -> Result<AdminDecision, Refusal> {
        let calls = self.handler.calls().ok_or(Refusal::NoPage)?;
        match parts.method {
            Method::POST if !is_our_own(parts) => Err(Refusal::ForeignChange),
            Method::POST => Ok(AdminDecision::Cancel(Arc::clone(calls), number.to_owned())),
            _ => Ok(AdminDecision::Answered(only_post())),
        }
    }
}

/// What is done with a request.
enum AdminDecision {
    Answered(AdminResponse),
    /// A request whose body is the new log filter.
    Change,
    /// A request to cancel the call with this number, whose body is the reason.
    Cancel(Arc<Table>, String),
}

/// Whether a person opens the live page, perhaps by a link on a page of another site.
fn opens_page(parts: &Parts) -> bool {
    let is = |name, value: &str| parts.headers.get(name).is_some_and(|found| found == value);
    parts.method == Method::GET
        && parts.uri.path() == "/"
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document")
}

/// Whether the query of a probe contains `404`: the status that it wants while the listener is not ready.
fn asks_for_404(parts: &Parts) -> bool {
    parts.uri.query().is_some_and(|query| query.split('&').any(|word| word == "404"))
}

/// Whether a change comes from a person or from a page of this listener, and not from another page.
fn is_our_own(parts: &Parts) -> bool {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| Some(parts.uri.authority()?.as_str()));
    let same = |origin: &HeaderValue| {
        origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://")) == host
    };
    parts.headers.contains_key(ADMIN_CHANGES) && parts.headers.get(ORIGIN).is_none_or(same)
}

fn live_page() -> AdminResponse {
    let mut response = Response::new(AdminBody::from(page::text()));
    *response.headers_mut() = page::headers();
    response
}

fn log_level() -> AdminResponse {
    match log::filter() {
        Some(filter) => plain(StatusCode::OK, &format!("{filter}\n")),
        None => failed(&FilterError::NoLog),
    }
}

/// Reads a short body; `None` if it is too long, breaks off or takes too long.
async fn read_short<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin>(
    body: B,
) -> Option<Bytes> {
    let body = timeout(BODY, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    Some(body.ok()?.ok()?.to_bytes())
}

async fn change<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin>(
    body: B,
) -> AdminResponse {
    let Some(body) = read_short(body).await else {
        return plain(
            StatusCode::BAD_REQUEST,
            "milepost: no log filter has come; send a short one\n",
        );
    };
    match log::set_filter(&String::from_utf8_lossy(&body)) {
        Ok(()) => log_level(),
        Err(error) => failed(&error),
    }
}

fn failed(error: &FilterError) -> AdminResponse {
    let status = match error {
        FilterError::NoLog => StatusCode::NOT_FOUND,
        FilterError::Words(_) => StatusCode::BAD_REQUEST,
    };
    plain(status, &format!("milepost: {error}\n"))
}

fn no_method() -> AdminResponse {
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "milepost: use GET, PUT or DELETE\n");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, PUT, DELETE"));
    answer
}

pub(super) fn plain(status: StatusCode, text: &str) -> AdminResponse {
    typed(status, PLAIN, text.to_owned())
}

pub(super) fn typed(status: StatusCode, kind: &'static str, text: String) -> AdminResponse {
    let mut response = Response::new(AdminBody::from(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests;
