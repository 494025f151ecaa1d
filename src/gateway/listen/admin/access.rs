//! Access to the admin listener: which token a path needs, and where the live page and `tap` find the token.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tracing::warn;

use super::token::AdminToken;
use super::{AdminResponse, PLAIN, streams};
use crate::config::routes::{Admin, Secret, Server};
use crate::gateway::listen::admission::authorize;
use crate::gateway::listen::handler::Peer;
use crate::transport::http::refusal::Refusal;

/// The header of a 401 over loopback with the path of the token's file, which only the user who runs Milepost can read.
pub const TOKEN_FILE: HeaderName = HeaderName::from_static("milepost-token-file");

/// The settings of the admin listener, and its tokens.
pub(super) struct Access {
    /// The settings of the listener for clients, which determine who is admitted.
    pub(super) server: Server,
    bearer: Option<Secret>,
    made: Option<AdminToken>,
}

impl Access {
    /// Returns the access rules, with a token in this state directory if the settings require a token. If no token can
    /// be written, the log says so.
    pub(super) fn new(server: &Server, admin: &Admin, state: Option<&Path>) -> Self {
        let is_wanted = admin.make_token && admin.bearer.is_none() && admin.listen.is_some();
        let made = is_wanted.then(|| make(state)).flatten();
        Self { server: server.clone(), bearer: admin.bearer.clone(), made }
    }

    /// Checks whether a client may read messages and calls, and change anything.
    pub(super) fn authorize(&self, client: &Peer, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.made {
            Some(made) => authorize(Some(made.secret()), headers).map(drop),
            None => self.authorize_metrics(client, headers),
        }
    }

    /// Checks whether a client may read metrics.
    pub(super) fn authorize_metrics(
        &self,
        client: &Peer,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        if self.bearer.is_none() && !is_local(client) {
            return Err(Refusal::OperatorsOnly);
        }
        authorize(self.bearer.as_ref(), headers).map(drop)
    }

    /// Returns the file of the token that Milepost made.
    pub(super) fn token_file(&self) -> Option<PathBuf> {
        self.made.as_ref().map(|made| made.path().to_owned())
    }

    /// Returns the address of the live page for a person.
    pub(super) fn start_link(&self, listen: SocketAddr) -> String {
        format!("http://{}/", own_address(listen))
    }

    /// Returns the same address with the token, for a link that only this person sees. Browsers do not send the part
    /// after `#`.
    pub(super) fn secret_start_link(&self, listen: SocketAddr) -> String {
        let token = self.made.as_ref().map(|made| format!("#token={}", made.secret().reveal()));
        self.start_link(listen) + &token.unwrap_or_default()
    }

    /// Returns the response to a refused request. A client of this machine that needs the token is told where its file
    /// is.
    pub(super) fn refuse(&self, refusal: Refusal, client: &Peer, parts: &Parts) -> AdminResponse {
        let mut response = refusal.response(&parts.method).map(streams::AdminBody::Whole);
        if refusal != Refusal::Unauthorized || !is_local(client) {
            return response;
        }
        let Some(path) = self.token_file() else { return response };
        if parts.method != Method::POST {
            let text = format!(
                "milepost: the token is in {}; send it as Authorization: Bearer\n",
                path.display()
            );
            *response.body_mut() = streams::AdminBody::from(bytes::Bytes::from(text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PLAIN));
        }
        // A header cannot contain a path with control characters; the log names it.
        if let Ok(value) = HeaderValue::from_bytes(path.as_os_str().as_encoded_bytes()) {
            response.headers_mut().insert(TOKEN_FILE, value);
        }
        response
    }
}

fn make(state: Option<&Path>) -> Option<AdminToken> {
    const HOW: &str = "no token for operators: every user of this machine can read and cancel calls and \
                       change the log level; set `bearer` of [admin]";
    let Some(folder) = state else {
        warn!("{HOW}, or a folder in `dir` of [state]");
        return None;
    };
    AdminToken::make(folder)
        .inspect_err(|error| {
            let folder = folder.display().to_string();
            warn!(folder, %error, "{HOW}, or another folder in `dir` of [state]");
        })
        .ok()
}

fn is_local(client: &Peer) -> bool {
    client.local.ip().to_canonical().is_loopback()
}

/// Returns the address at which a listener is reached from its own machine.
pub fn own_address(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listen
}
