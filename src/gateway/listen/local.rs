//! The interface for other processes of the same user: `/about`, `/calls`, `/calls/N/cancel` and `/tap` on a local
//! socket, without a token. No token is needed because a page in a browser cannot reach the socket.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::path::Path;
use std::pin::pin;
use std::process;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};

use super::admin::{
    AdminBody, AdminStreams, JSON, call_to_cancel, cancel, only_post, plain, typed,
};
use super::connection::{AnswerFuture, Http, boxed};
use crate::observe::calls::{PATH_OF_TAP, Table};
use crate::observe::metrics::Traffic;
use crate::observe::printable::printable_json;
use crate::transport::http::write_state::WriteState;
use crate::transport::local_socket::LocalSocket;
use crate::transport::tasks;

/// Limit of the bytes of a request head on a local socket. A longer head is refused.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// The origin of a request on a local socket, for the log.
const OPERATOR: &str = "local";

/// The path that describes a process.
pub const PATH_OF_ABOUT: &str = "/about";

/// What a process that shows its calls says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutProcess {
    /// The command: `wrap` or `serve`.
    pub kind: String,
    /// The id of the process.
    pub pid: u32,
    /// The server of `wrap`, or the address of `serve`.
    pub name: String,
    /// The time of the start, in milliseconds since 1970.
    pub since: u64,
    /// The version of Milepost.
    pub version: String,
}

impl AboutProcess {
    /// Returns the description of this process.
    pub fn this(kind: &str, name: String) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            kind: kind.to_owned(),
            pid: process::id(),
            name,
            since: since.as_millis().try_into().unwrap_or(u64::MAX),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Shows the calls of a table on a local socket.
pub struct LocalApi {
    about: AboutProcess,
    calls: Arc<Table>,
    streams: AdminStreams,
}

impl LocalApi {
    /// Returns the interface to the calls of this process.
    pub fn new(about: AboutProcess, calls: Arc<Table>) -> Arc<Self> {
        Arc::new(Self { about, calls, streams: AdminStreams::default() })
    }

    /// Serves a socket in `folder` while the future is polled. If no socket can be opened, the future never completes.
    /// Each connection has its own task; without an observer no task runs.
    pub async fn serve(self: Arc<Self>, folder: &Path) -> Infallible {
        let socket = match LocalSocket::bind(folder, &self.about.kind) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::debug!(folder = %folder.display(), %error, "no local socket");
                return pending().await;
            }
        };
        let http = Http::new(HEAD_BYTES_MAX, Traffic::default());
        loop {
            let stream = socket.accept().await;
            let (http, api) = (http.clone(), Arc::clone(&self));
            tasks::spawn(async move {
                let answer = |request: Request<Incoming>| -> AnswerFuture {
                    let (parts, body) = request.into_parts();
                    let Some(number) = call_to_cancel(parts.uri.path()) else {
                        return boxed(ready(api.answer(&parts)));
                    };
                    if parts.method != Method::POST {
                        return boxed(ready(only_post()));
                    }
                    let (calls, number) = (Arc::clone(&api.calls), number.to_owned());
                    boxed(async move { cancel(&calls, &number, OPERATOR, body).await })
                };
                let never = pin!(pending());
                Box::pin(http.converse(Box::new(stream), WriteState::default(), &answer, never))
                    .await;
            });
        }
    }

    fn answer(&self, parts: &Parts) -> Response<AdminBody> {
        if parts.method != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "milepost: use GET\n");
        }
        match parts.uri.path() {
            PATH_OF_ABOUT => {
                let about = printable_json(&self.about);
                typed(StatusCode::OK, JSON, about)
            }
            path if path == PATH_OF_TAP || path == "/calls" || path.starts_with("/calls/") => {
                self.streams.answer(&self.calls, None, parts)
            }
            _ => plain(StatusCode::NOT_FOUND, "milepost: /about, /calls and /tap are known here\n"),
        }
    }
}
