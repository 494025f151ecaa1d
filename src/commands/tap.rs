//! `milepost tap`: shows the messages that pass through `milepost serve` in this terminal.

use std::ffi::OsStr;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use console::Style;
use http::{Method, StatusCode};
use tokio::io::{AsyncWriteExt, Stdout, stdout};
use tokio::signal::ctrl_c;

use crate::commands::args::{AdminAddress, TapArgs, WrapError};
use crate::commands::printable::printable;
use crate::gateway::listen::{AdminToken, ROUTES_WATCHED, TOKEN_FILE};
use crate::progress::clients::is_unprintable;
use crate::transport::http::client::UpstreamError;
use crate::transport::mcp_http::raw_client::{RawHttpClient, RawResponse};
use crate::transport::mcp_http::target::TargetError;

/// The longest line, in bytes, that `tap` reads: longer than every line of the proxy.
const LINE_MAX: usize = 64 << 10;

/// Bytes of a refusal that `tap` shows.
const REFUSAL_MAX: usize = 1 << 10;

/// The reason why `tap` cannot begin, or ends.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
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
    /// The token is missing or wrong.
    #[error(
        "{0} requires the token `bearer` of [admin]: give --config FILE, or --bearer-file FILE"
    )]
    Unauthorized(String),
    /// The token that the proxy made cannot be read.
    #[error(
        "{0} requires the token in {path}; run `tap` as the user of `milepost serve`, or give --bearer-file FILE",
        path = .1.display()
    )]
    TokenFile(String, PathBuf, #[source] io::Error),
    /// The proxy refuses access.
    #[error("{0} refuses: {1}")]
    Refused(String, String),
    /// The address belongs to another program.
    #[error("{0} is not the admin listener of `milepost serve`: the answer is {1}")]
    Stranger(String, String),
    /// The proxy does not answer any more.
    #[error("the proxy at {0} has ended")]
    Ended(String),
    /// The connection is lost.
    #[error("the connection to {0} is lost")]
    Lost(String, #[source] UpstreamError),
    /// Nothing can be written.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl TapError {
    /// Whether messages have already been shown.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::Lost(..) | Self::Output(_))
    }
}

/// Shows passing messages until Ctrl-C.
///
/// # Errors
/// If the proxy cannot be asked, or ends.
pub async fn run(args: &TapArgs) -> Result<(), TapError> {
    let mut address = args.resolve()?;
    let admin = address.url.origin().ascii_serialization();
    let shown = async {
        let stranger = |what: &str| TapError::Stranger(admin.clone(), what.to_owned());
        let mut reply = ask(&address, &admin).await?;
        if reply.status == StatusCode::UNAUTHORIZED
            && address.takes_made_token()
            && let Some(path) = reply.headers.get(TOKEN_FILE)
        {
            let path = Path::new(OsStr::from_bytes(path.as_bytes()));
            let unreadable = |source| TapError::TokenFile(admin.clone(), path.to_owned(), source);
            address.present(AdminToken::read(path).map_err(unreadable)?.secret().reveal())?;
            reply = ask(&address, &admin).await?;
        }
        let kind = if args.json { "application/x-ndjson" } else { "text/plain" };
        match reply.status {
            StatusCode::OK if reply.content_type() == kind => {}
            StatusCode::UNAUTHORIZED => return Err(TapError::Unauthorized(admin.clone())),
            status => {
                let said = refusal(&mut reply).await;
                return Err(match said.strip_prefix("milepost: ") {
                    Some(why) if status != StatusCode::NOT_FOUND => {
                        TapError::Refused(admin.clone(), why.to_owned())
                    }
                    _ => stranger(&format!("{status} ({})", reply.content_type())),
                });
            }
        }
        eprintln!("milepost: {}", watching(&reply, &admin));
        let mut page = TapOutput::new(args.json);
        while let Some(chunk) = reply.chunk().await {
            page.take(&chunk.map_err(|error| TapError::Lost(admin.clone(), error))?).await?;
        }
        Err(TapError::Ended(admin.clone()))
    };
    let shown: Result<(), TapError> = tokio::select! {
        shown = shown => shown,
        _ = ctrl_c() => Ok(()),
    };
    match shown {
        // Who has seen enough is no fault.
        Err(TapError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        shown => shown,
    }
}

/// The line before all messages: how many routes are watched, and where.
fn watching(reply: &RawResponse, admin: &str) -> String {
    let routes = reply.headers.get(ROUTES_WATCHED).and_then(|count| count.to_str().ok());
    match routes {
        Some("1") => format!("watching 1 route at {admin}, until Ctrl-C"),
        Some(count) => format!("watching {count} routes at {admin}, until Ctrl-C"),
        None => format!("watching {admin}, until Ctrl-C"),
    }
}

/// Asks for the messages.
async fn ask(address: &AdminAddress, admin: &str) -> Result<RawResponse, TapError> {
    let nothing = || TapError::Stranger(admin.to_owned(), "nothing".to_owned());
    let client = RawHttpClient::new(&address.route)?.ok_or_else(nothing)?;
    let sent = client.send(Method::GET, [], Bytes::new()).await;
    sent.map_err(|error| TapError::Nobody(admin.to_owned(), error))
}

/// The text of a refusal.
async fn refusal(reply: &mut RawResponse) -> String {
    let mut said = Vec::new();
    while said.len() < REFUSAL_MAX
        && let Some(Ok(chunk)) = reply.chunk().await
    {
        said.extend_from_slice(&chunk);
    }
    said.truncate(REFUSAL_MAX);
    let said = String::from_utf8_lossy(&said);
    said.trim().chars().filter(|sign| !is_unprintable(*sign)).collect()
}

/// Standard output.
struct TapOutput {
    out: Stdout,
    is_json: bool,
    has_colours: bool,
    /// The bytes of an unfinished line.
    line: Vec<u8>,
}

impl TapOutput {
    fn new(is_json: bool) -> Self {
        let has_colours = io::stdout().is_terminal() && console::colors_enabled() && !is_json;
        Self { out: stdout(), is_json, has_colours, line: Vec::new() }
    }

    async fn take(&mut self, chunk: &[u8]) -> io::Result<()> {
        let mut text = String::new();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() > LINE_MAX {
                let line = std::mem::take(&mut self.line);
                self.put(String::from_utf8_lossy(&line).trim_end_matches('\n'), &mut text);
            }
        }
        self.out.write_all(text.as_bytes()).await?;
        self.out.flush().await
    }

    fn put(&self, line: &str, text: &mut String) {
        let line = printable(line, self.is_json);
        let style = match () {
            () if !self.has_colours => None,
            () if line.starts_with('#') || line.starts_with("    forwarded") => {
                Some(Style::new().dim())
            }
            () if line.starts_with("    repaired") => Some(Style::new().yellow()),
            () if line.starts_with("    withheld") => Some(Style::new().red()),
            () if line.starts_with("    added") => Some(Style::new().cyan()),
            () => None,
        };
        let _ = match style {
            Some(style) => writeln!(text, "{}", style.force_styling(true).apply_to(line)),
            None => writeln!(text, "{line}"),
        };
    }
}
