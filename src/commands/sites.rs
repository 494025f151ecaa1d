//! The Milepost processes that show their calls, found by their local sockets or at an admin address.

use std::collections::BTreeSet;
use std::env;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::timeout;

use crate::commands::args::{AdminAddress, WrapError};
use crate::gateway::listen::{ADMIN_CHANGES, AboutProcess, AdminToken, PATH_OF_ABOUT, TOKEN_FILE};
use crate::observe::durations::state_dir;
use crate::platform::files;
use crate::progress::clients::is_unprintable;
use crate::transport::http::client::UpstreamError;
use crate::transport::http::local_client::{self, LocalResponse};
use crate::transport::local_socket;
use crate::transport::mcp_http::raw_client::{RawHttpClient, RawResponse};
use crate::transport::mcp_http::target::TargetError;

/// Maximum number of processes that are asked.
pub(crate) const SITES_MAX: usize = local_socket::SOCKETS_MAX;

/// Deadline for a process to answer `/about`. A stopped (`SIGSTOP`) process accepts connections but never answers.
const ABOUT_WAIT: Duration = Duration::from_secs(2);

/// Maximum number of bytes in an answer that is read whole.
const WHOLE_MAX: usize = 16 << 20;

/// Maximum number of bytes that are shown of a refusal.
const REFUSAL_MAX: usize = 1 << 10;

/// The content type of plain text.
pub(crate) const TEXT: &str = "text/plain";

/// The content type of JSON.
pub(crate) const JSON: &str = "application/json";

/// The content type of JSON objects, one per line.
pub(crate) const LINES: &str = "application/x-ndjson";

/// The content type of server-sent events.
pub(crate) const EVENTS: &str = "text/event-stream";

/// The reason why a process does not show its calls.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The arguments cannot be used.
    #[error(transparent)]
    Arguments(#[from] WrapError),
    /// The address is not valid, or the certificates cannot be used.
    #[error(transparent)]
    Address(#[from] TargetError),
    /// No listener answers at the address.
    #[error(
        "{0} cannot be reached; is `milepost serve` running, with an [admin] table in its route file?"
    )]
    Nobody(String, #[source] UpstreamError),
    /// The process of a socket does not answer.
    #[error("{0} does not answer")]
    Silent(String, #[source] io::Error),
    /// The token is missing or wrong.
    #[error(
        "{0} requires the token `bearer` of [admin]: give --config FILE, or --bearer-file FILE"
    )]
    Unauthorized(String),
    /// The token that the proxy made cannot be read.
    #[error(
        "{0} requires the token in {path}; run this command as the user of `milepost serve`, or give --bearer-file FILE",
        path = .1.display()
    )]
    TokenFile(String, PathBuf, #[source] io::Error),
    /// The proxy refuses access.
    #[error("{0} refuses: {1}")]
    Refused(String, String),
    /// The address belongs to another program.
    #[error("{0} is not the admin listener of `milepost serve`: the answer is {1}")]
    Stranger(String, String),
    /// The connection is lost.
    #[error("the connection to {0} is lost")]
    Lost(String, #[source] io::Error),
    /// No process runs.
    #[error(
        "nothing runs that shows its calls: no `milepost wrap` of this user, and no `milepost serve` with an \
         [admin] table"
    )]
    Nothing,
}

/// Returns the directory where this process, which keeps its state in the directory `state`, opens its socket; `None`
/// if it keeps no state and the user has no directory for sockets.
pub fn own_folder(state: Option<&Path>) -> Option<PathBuf> {
    // Other processes look for sockets in the usual directory, wherever this one keeps its state.
    let state = state.and_then(|_| state_dir(None, None));
    local_socket::folder(env::var_os("XDG_RUNTIME_DIR"), state.as_deref())
}

/// Returns the directory with this user's local sockets; `None` if there is no such directory.
pub fn folder() -> Option<PathBuf> {
    let state = state_dir(None, None);
    local_socket::folder(env::var_os("XDG_RUNTIME_DIR"), state.as_deref())
}

/// A process that shows its calls.
#[derive(Clone)]
pub struct Site {
    /// The name for people.
    pub name: String,
    way: SiteWay,
}

#[derive(Clone)]
enum SiteWay {
    Socket(PathBuf, AboutProcess),
    Admin(Box<AdminAddress>),
}

/// A request to a process.
struct SiteRequest<'a> {
    method: Method,
    /// The path with its query.
    target: &'a str,
    /// The wanted content type of the answer.
    kind: &'static str,
    /// The body of the request.
    text: &'a str,
}

/// The answer of a process; its body is still arriving.
pub struct SiteReply {
    name: String,
    /// The head of the answer.
    pub headers: HeaderMap,
    body: SiteBody,
}

enum SiteBody {
    Local(LocalResponse),
    Http(Box<RawResponse>),
}

/// Finds the processes of this user by their sockets. Sockets of processes that have ended are removed.
pub async fn find(folder: &Path) -> Vec<Site> {
    let sockets = local_socket::list(folder);
    let sites = join_all(sockets.into_iter().map(at_socket)).await;
    sites.into_iter().flatten().collect()
}

/// Finds all processes of this user: each one with a socket, and the usual admin address if no `serve` is among them.
pub(crate) async fn running() -> Vec<Site> {
    let folder = folder();
    let mut sites = match &folder {
        Some(folder) => find(folder).await,
        None => Vec::new(),
    };
    if !sites.iter().any(Site::is_serve) {
        sites.extend(AdminAddress::usual().map(Site::at));
    }
    sites
}

/// Returns the processes whose keys are not among `known`.
pub async fn find_new(folder: &Path, known: &BTreeSet<String>) -> Vec<Site> {
    let is_new = |path: &PathBuf| !known.contains(&path.display().to_string());
    let sockets = local_socket::list(folder).into_iter().filter(is_new);
    let sites = join_all(sockets.map(at_socket)).await;
    sites.into_iter().flatten().collect()
}

async fn at_socket(path: PathBuf) -> Option<Site> {
    timeout(ABOUT_WAIT, ask_about(path)).await.ok().flatten()
}

async fn ask_about(path: PathBuf) -> Option<Site> {
    let reply =
        local_client::send(&path, Method::GET, PATH_OF_ABOUT, JSON, Bytes::new()).await.ok()?;
    let reply = SiteReply {
        name: String::new(),
        headers: reply.headers.clone(),
        body: SiteBody::Local(reply),
    };
    let about: AboutProcess = serde_json::from_slice(&reply.whole().await.ok()?).ok()?;
    let name: String = about.name.chars().filter(|sign| !is_unprintable(*sign)).collect();
    let name = format!("{} {name}", about.kind);
    Some(Site { name, way: SiteWay::Socket(path, about) })
}

impl Site {
    /// Returns the listener at an admin address as a process.
    pub fn at(address: AdminAddress) -> Self {
        let name = address.url.origin().ascii_serialization();
        Self { name, way: SiteWay::Admin(Box::new(address)) }
    }

    /// Returns a text that identifies the process.
    pub fn key(&self) -> String {
        match &self.way {
            SiteWay::Socket(path, _) => path.display().to_string(),
            SiteWay::Admin(_) => self.name.clone(),
        }
    }

    /// Returns the process's own description, if it was found by its socket.
    pub fn about(&self) -> Option<&AboutProcess> {
        match &self.way {
            SiteWay::Socket(_, about) => Some(about),
            SiteWay::Admin(_) => None,
        }
    }

    /// Whether the process is a `milepost serve` that was found by its socket.
    pub fn is_serve(&self) -> bool {
        self.about().is_some_and(|about| about.kind == "serve")
    }

    /// Requests `target` (a path with its query), with `kind` as the wanted content type.
    ///
    /// # Errors
    /// If the process has ended, or does not answer the request.
    pub async fn get(&mut self, target: &str, kind: &'static str) -> Result<SiteReply, SiteError> {
        let request = SiteRequest { method: Method::GET, target, kind, text: "" };
        let (status, mut reply) = self.send(&request).await?;
        let is_wanted = reply.content_type() == kind;
        match status {
            StatusCode::OK if is_wanted => Ok(reply),
            StatusCode::UNAUTHORIZED => Err(SiteError::Unauthorized(reply.name)),
            status => {
                let said = reply.refusal().await;
                Err(match said.strip_prefix("milepost: ") {
                    Some(why) if status != StatusCode::NOT_FOUND => {
                        SiteError::Refused(reply.name, why.to_owned())
                    }
                    _ => {
                        let what = format!("{status} ({})", reply.content_type());
                        SiteError::Stranger(reply.name, what)
                    }
                })
            }
        }
    }

    /// Posts `text` to `target`, for a change in the process. Returns the text of the response.
    ///
    /// # Errors
    /// If the process has ended, or refuses the change.
    pub async fn post(&mut self, target: &str, text: &str) -> Result<String, SiteError> {
        let request = SiteRequest { method: Method::POST, target, kind: TEXT, text };
        let (status, mut reply) = self.send(&request).await?;
        let said = reply.refusal().await;
        match (status, said.strip_prefix("milepost: ")) {
            (StatusCode::OK, None) => Ok(said),
            (StatusCode::UNAUTHORIZED, _) => Err(SiteError::Unauthorized(reply.name)),
            (_, Some(why)) => Err(SiteError::Refused(reply.name, why.to_owned())),
            (status, None) => {
                let what = format!("{status} ({})", reply.content_type());
                Err(SiteError::Stranger(reply.name, what))
            }
        }
    }

    async fn send(
        &mut self,
        request: &SiteRequest<'_>,
    ) -> Result<(StatusCode, SiteReply), SiteError> {
        let name = self.name.clone();
        let (status, headers, body) = match &mut self.way {
            SiteWay::Socket(path, _) => {
                let SiteRequest { method, target, kind, text } = request;
                let body = Bytes::copy_from_slice(text.as_bytes());
                let reply = local_client::send(path, method.clone(), target, kind, body).await;
                let reply = reply.map_err(|error| SiteError::Silent(name.clone(), error))?;
                (reply.status, reply.headers.clone(), SiteBody::Local(reply))
            }
            SiteWay::Admin(address) => {
                let reply = ask_admin(address, &name, request).await?;
                (reply.status, reply.headers.clone(), SiteBody::Http(Box::new(reply)))
            }
        };
        Ok((status, SiteReply { name, headers, body }))
    }
}

/// Sends a request to the listener at an address. A token of a proxy on this machine is found without an option.
async fn ask_admin(
    address: &mut AdminAddress,
    name: &str,
    request: &SiteRequest<'_>,
) -> Result<RawResponse, SiteError> {
    let reply = ask_once(address, name, request).await?;
    if reply.status != StatusCode::UNAUTHORIZED || !address.takes_made_token() {
        return Ok(reply);
    }
    let path = reply.headers.get(TOKEN_FILE).and_then(|path| files::path_of(path.as_bytes()));
    let Some(path) = path else { return Ok(reply) };
    let unreadable = |source| SiteError::TokenFile(name.to_owned(), path.to_owned(), source);
    address.present(AdminToken::read(path).map_err(unreadable)?.secret().reveal())?;
    ask_once(address, name, request).await
}

async fn ask_once(
    address: &AdminAddress,
    name: &str,
    request: &SiteRequest<'_>,
) -> Result<RawResponse, SiteError> {
    let nothing = || SiteError::Stranger(name.to_owned(), "nothing".to_owned());
    let client = RawHttpClient::new(&address.route)?.ok_or_else(nothing)?;
    let client = client.at(request.target.parse().map_err(|_| nothing())?);
    let accept = (ACCEPT, HeaderValue::from_static(request.kind));
    let change = (ADMIN_CHANGES, HeaderValue::from_static("1"));
    let headers = iter::once(accept).chain((request.method != Method::GET).then_some(change));
    let body = Bytes::copy_from_slice(request.text.as_bytes());
    let sent = client.send(request.method.clone(), headers, body).await;
    sent.map_err(|error| SiteError::Nobody(name.to_owned(), error))
}

impl SiteReply {
    fn content_type(&self) -> String {
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// Returns the next bytes of the body; `None` at its end. Cancel-safe.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, SiteError>> {
        let chunk = match &mut self.body {
            SiteBody::Local(reply) => reply.chunk().await?,
            SiteBody::Http(reply) => reply.chunk().await?.map_err(io::Error::other),
        };
        Some(chunk.map_err(|error| SiteError::Lost(self.name.clone(), error)))
    }

    /// Returns the whole body.
    ///
    /// # Errors
    /// If the connection fails, or the body has more than `WHOLE_MAX` bytes.
    pub async fn whole(mut self) -> Result<Vec<u8>, SiteError> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk().await {
            whole.extend_from_slice(&chunk?);
            if whole.len() > WHOLE_MAX {
                let error = io::Error::other("the answer is too long");
                return Err(SiteError::Lost(self.name, error));
            }
        }
        Ok(whole)
    }

    /// Returns the text of a refusal.
    async fn refusal(&mut self) -> String {
        let mut said = Vec::new();
        while said.len() < REFUSAL_MAX
            && let Some(Ok(chunk)) = self.chunk().await
        {
            said.extend_from_slice(&chunk);
        }
        said.truncate(REFUSAL_MAX);
        let said = String::from_utf8_lossy(&said);
        said.trim().chars().filter(|sign| !is_unprintable(*sign)).collect()
    }
}
