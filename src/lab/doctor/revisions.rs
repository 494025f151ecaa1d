//! Makes the same calls in every revision that a server supports, for `check-progress`.

use std::pin::pin;

use tokio::sync::watch;

use super::cure;
use super::findings::{Examined, Finding};
use super::negotiate::{RevisionSupport, SessionStart};
use super::traffic::TransportKind;
use super::{DoctorError, Inspection, Options, SessionTerms};
use crate::platform::signals::Signals;
use crate::protocol::mcp::Revision;
use crate::transport::child;

/// The sessions with a server, one for each revision.
#[derive(Debug, Clone)]
pub struct RevisionSessions {
    /// The server's name and version, if the server gives them.
    pub name: Option<String>,
    /// The command or address of the server.
    pub reached: String,
    /// The transport of the server.
    pub wire: TransportKind,
    /// The findings of the negotiation.
    pub negotiation: Vec<Finding>,
    /// Each revision with the examined session. The revision is `None` if no client can begin a session.
    pub sessions: Vec<(Option<&'static str>, Examined)>,
}

/// Calls the tool in every revision that the server supports, or only in the revision of the options. Finally ends the
/// server with all its descendants, also after a signal.
///
/// # Errors
/// If the server cannot be used, or cannot be used with these options.
pub async fn in_each_revision(options: Options) -> Result<RevisionSessions, DoctorError> {
    let (tell, stop) = watch::channel(false);
    let revisions = options.session.revision.map_or(Revision::ALL.len(), |_| 1);
    // In each revision, one further call is allowed for a silent call.
    let limit = options.call.as_ref().map(|ask| ask.limit(revisions, revisions));
    let inspection = Inspection::new(options, limit.unwrap_or_default(), stop);
    until_signals(&tell, inspection.sessions()).await
}

/// Runs `doing` to its end. The first signal asks `doing` to end properly; the second ends it immediately.
pub(in crate::lab) async fn until_signals<T>(
    tell: &watch::Sender<bool>,
    doing: impl Future<Output = Result<T, DoctorError>>,
) -> Result<T, DoctorError> {
    child::adopt_orphans();
    let mut signals = Signals::to_pass_on().ok();
    let mut doing = pin!(doing);
    loop {
        let signal = async {
            match &mut signals {
                Some(signals) => drop(signals.next().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = &mut doing => return done,
            () = signal => if tell.send_replace(true) {
                return Err(DoctorError::Interrupted);
            },
        }
    }
}

impl Inspection {
    async fn sessions(&self) -> Result<RevisionSessions, DoctorError> {
        self.calls.announce();
        let mut known = self.negotiate().await?;
        let spoken = known.revisions.iter().filter(|(_, spoken)| *spoken == RevisionSupport::Yes);
        let mut starts: Vec<SessionStart> = spoken.map(|(date, _)| start(date)).collect();
        if starts.is_empty() {
            starts.push(self.beginning(&known)?);
        }
        let wire = known.transport;
        let terms = SessionTerms { wire, ..SessionTerms::default() };
        let mut sessions = Vec::new();
        for beginning in starts {
            let link = self.link(&known)?;
            let mut examined = self.session(link, beginning, &terms, &mut known).await?;
            if self.is_silent(&examined) {
                self.try_arguments(&known, beginning, wire, &mut examined).await?;
            }
            sessions.push((beginning.revision(), examined));
        }
        let reached = cure::shown(&self.behind(&known));
        Ok(RevisionSessions { name: known.name, reached, wire, negotiation: known.found, sessions })
    }
}

fn start(date: &'static str) -> SessionStart {
    match Revision::from_date(date) >= Some(Revision::V2026_07_28) {
        true => SessionStart::Modern(date),
        false => SessionStart::Handshake(date),
    }
}
