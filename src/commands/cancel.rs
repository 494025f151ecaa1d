//! `milepost cancel`: ends an open call of one of this user's processes, or of the `milepost serve` in the arguments.

use std::time::Duration;

use futures::future::join_all;
use serde::Deserialize;
use tokio::time::timeout;

use crate::commands::args::{CallToCancel, CancelArgs};
use crate::commands::columns::{columns, printable};
use crate::commands::sites::{self, JSON, Site, SiteError};
use crate::protocol::order;

/// Deadline for a process to send its list of calls.
const CALLS_WAIT: Duration = Duration::from_secs(2);

/// The titles of the columns in the table of open calls.
const HEAD: [&str; 5] = ["CALL", "TOOL", "SERVER", "PID", "FOR"];

/// The reason why no call is cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelCommandError {
    /// No process can be asked, or the process refuses.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// No call is open, so none can be cancelled.
    #[error("no call is open that these arguments mean")]
    NoneOpen,
    /// The arguments do not identify a call.
    #[error("say which call to cancel: its number, or `last`\n{0}")]
    Unnamed(String),
    /// No open call has this number.
    #[error("no open call has the number {0}\n{1}")]
    Unknown(u64, String),
    /// Calls of several processes have this number.
    #[error("several processes have a call {0}; add --server NAME or --pid PID\n{1}")]
    Ambiguous(u64, String),
}

impl CancelCommandError {
    /// Whether processes could be asked, but the call is not open or cannot be cancelled.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NoneOpen
                | Self::Unknown(..)
                | Self::Site(SiteError::Refused(..) | SiteError::Lost(..))
        )
    }
}

/// A call, as `/calls` describes it.
#[derive(Debug, Clone, Deserialize)]
struct CancellableCall {
    n: u64,
    route: String,
    method: String,
    tool: Option<String>,
    opened: u64,
    ended: Option<u64>,
}

/// The part of the answer to `/calls` that `cancel` uses.
#[derive(Debug, Deserialize)]
struct CallsToCancel {
    /// The clock of the answering process, in milliseconds since 1970.
    now: u64,
    calls: Vec<CancellableCall>,
}

/// An open call, and its process.
struct OpenCallAt<'a> {
    site: &'a Site,
    now: u64,
    call: &'a CancellableCall,
}

/// Cancels the call that the arguments identify. Returns the line for the operator.
///
/// # Errors
/// If no process answers, the arguments match no call or several, or the call cannot be cancelled.
pub async fn run(args: &CancelArgs) -> Result<String, CancelCommandError> {
    let named = args.admin.addresses().await.map_err(SiteError::from)?;
    let is_one = named.as_ref().is_some_and(|addresses| addresses.len() == 1);
    let mut found = match named {
        Some(addresses) => addresses.into_iter().map(Site::at).collect(),
        None => sites::running().await,
    };
    if let Some(pid) = args.pid {
        found.retain(|site| site.about().is_some_and(|about| about.pid == pid));
    }
    let known = join_all(found.into_iter().map(ask)).await;
    let mut read = Vec::new();
    for (site, calls) in known {
        match calls {
            Ok(calls) => read.push((site, calls)),
            Err(error) if is_one => return Err(error.into()),
            // Ignore the error: no process listens at the usual address, or the process has just ended.
            Err(_) => {}
        }
    }
    let open = open_calls(&read, args.server.as_deref());
    let meant = choose(args.call, &open)?;
    let (mut site, number) = (meant.site.clone(), meant.call.n);
    let label = printable(meant.call.label());
    site.post(&format!("/calls/{number}/cancel"), &args.reason).await?;
    Ok(format!("cancelled call {number}, {label}, of {}\n", printable(&meant.server())))
}

/// Requests the calls of a process, with a token of this machine if the process requires one.
async fn ask(mut site: Site) -> (Site, Result<CallsToCancel, SiteError>) {
    let name = site.name.clone();
    let read = async {
        let whole = site.get("/calls", JSON).await?.whole().await?;
        let strange =
            |error: serde_json::Error| SiteError::Stranger(name.clone(), error.to_string());
        serde_json::from_slice(&whole).map_err(strange)
    };
    let read = timeout(CALLS_WAIT, read).await;
    let silent = |_| SiteError::Silent(name.clone(), std::io::ErrorKind::TimedOut.into());
    let read = read.map_err(silent).and_then(|read| read);
    (site, read)
}

/// Returns the open calls of a server, or of all servers, oldest first.
fn open_calls<'a>(read: &'a [(Site, CallsToCancel)], server: Option<&str>) -> Vec<OpenCallAt<'a>> {
    let mut open: Vec<OpenCallAt<'_>> = read
        .iter()
        .flat_map(|(site, calls)| {
            let open = calls.calls.iter().filter(|call| call.ended.is_none());
            open.map(|call| OpenCallAt { site, now: calls.now, call })
        })
        .filter(|open| server.is_none_or(|server| open.is_of(server)))
        .collect();
    order::sort_by_key(&mut open, |open| open.call.opened);
    open
}

/// Chooses the call that the arguments identify.
fn choose<'a, 'b>(
    call: Option<CallToCancel>,
    open: &'b [OpenCallAt<'a>],
) -> Result<&'b OpenCallAt<'a>, CancelCommandError> {
    let last = open.last().ok_or(CancelCommandError::NoneOpen)?;
    let number = match call {
        None => return Err(CancelCommandError::Unnamed(table(open))),
        Some(CallToCancel::Last) => return Ok(last),
        Some(CallToCancel::Number(number)) => number,
    };
    let mut same = open.iter().filter(|open| open.call.n == number);
    match (same.next(), same.next()) {
        (Some(meant), None) => Ok(meant),
        (Some(_), Some(_)) => Err(CancelCommandError::Ambiguous(number, table(open))),
        (None, _) => Err(CancelCommandError::Unknown(number, table(open))),
    }
}

/// Returns the table of open calls.
fn table(open: &[OpenCallAt<'_>]) -> String {
    let rows = open.iter().map(|open| {
        let pid = open.site.about().map_or_else(|| "-".to_owned(), |about| about.pid.to_string());
        let seconds = open.now.saturating_sub(open.call.opened) / 1000;
        let (tool, server) = (open.call.label(), open.server());
        [open.call.n.to_string(), printable(tool), printable(&server), pid, format!("{seconds} s")]
    });
    columns(HEAD, rows, 3).trim_end().to_owned()
}

impl CancellableCall {
    fn label(&self) -> &str {
        self.tool.as_deref().unwrap_or(&self.method)
    }
}

impl OpenCallAt<'_> {
    /// Returns a readable name of the server: the path of a route, or the server's name in a `wrap`.
    fn server(&self) -> String {
        match self.site.about() {
            Some(about) if about.kind == "wrap" => about.name.clone(),
            _ => self.call.route.clone(),
        }
    }

    /// Whether `name` is the server of the call.
    fn is_of(&self, name: &str) -> bool {
        self.call.route == name || self.server() == name || self.site.name == name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::args::AdminAddress;

    fn read(calls: &[(u64, &str, u64, Option<u64>)]) -> (Site, CallsToCancel) {
        let call = |(n, route, opened, ended): &(u64, &str, u64, Option<u64>)| CancellableCall {
            n: *n,
            route: (*route).to_owned(),
            method: "tools/call".to_owned(),
            tool: Some("build".to_owned()),
            opened: *opened,
            ended: *ended,
        };
        let site = Site::at(AdminAddress::usual().unwrap());
        (site, CallsToCancel { now: 9_000, calls: calls.iter().map(call).collect() })
    }

    #[test]
    fn a_number_or_last_means_one_open_call() {
        let first =
            read(&[(1, "/a", 1_000, Some(2_000)), (2, "/a", 3_000, None), (3, "/b", 5_000, None)]);
        let known = [first, read(&[(2, "/c", 4_000, None)])];
        let meant = |call, server: Option<&str>| {
            let open = open_calls(&known, server);
            choose(call, &open)
                .map(|open| (open.call.n, open.call.route.clone()))
                .map_err(|error| error.to_string())
        };
        let number = |n| Some(CallToCancel::Number(n));
        assert_eq!(meant(number(3), None), Ok((3, "/b".to_owned())));
        assert_eq!(meant(Some(CallToCancel::Last), None), Ok((3, "/b".to_owned())));
        assert_eq!(meant(Some(CallToCancel::Last), Some("/c")), Ok((2, "/c".to_owned())));
        assert_eq!(meant(number(2), Some("/a")), Ok((2, "/a".to_owned())));
        for (call, server, words) in [
            (number(2), None, "several processes have a call 2"),
            (number(1), None, "no open call has the number 1"),
            (None, None, "say which call to cancel"),
            (number(2), Some("/d"), "no call is open"),
        ] {
            let error = meant(call, server).unwrap_err();
            assert!(error.starts_with(words), "{error}");
            assert_eq!(error.contains("build  /b"), server.is_none(), "{error}");
        }
    }
}
