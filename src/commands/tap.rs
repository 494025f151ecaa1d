//! `milepost tap`: shows the messages that pass through this user's processes of Milepost, or through one
//! `milepost serve`, in this terminal.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::future::pending;
use std::io::{self, IsTerminal};
use std::time::Duration;

use console::Style;
use tokio::io::{AsyncWriteExt, Stdout, stdout};
use tokio::signal::ctrl_c;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::commands::args::TapArgs;
use crate::commands::sites::{self, LINES, Site, SiteError, SiteReply, TEXT};
use crate::gateway::listen::ROUTES_WATCHED;
use crate::observe::printable::{TextForm, printable};
use crate::transport::tasks;

/// Maximum number of bytes in a line that `tap` reads. Every line of the proxy is shorter.
const LINE_MAX: usize = 64 << 10;

/// Maximum number of bytes of an incomplete message. A longer message is shown without its rest.
const HELD_MAX: usize = 1 << 20;

/// Deadline for the rest of a message to arrive. Afterwards the message counts as complete.
const SETTLES: Duration = Duration::from_millis(20);

/// The interval at which `tap` looks for new processes.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum number of pieces of text that wait to be written. Further pieces are not read from their process yet.
const WAITING_MAX: usize = 64;

/// The reason why `tap` cannot begin, or ends.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// No process shows its messages, or a process refuses.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The proxy, or the last of several, has ended.
    #[error("the proxy at {0} has ended")]
    Ended(String),
    /// The output cannot be written.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl TapError {
    /// Whether messages were shown before the error.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::Site(SiteError::Lost(..)) | Self::Output(_))
    }
}

/// Text from a process, or the end of a process with its key and its name.
enum TapEvent {
    Text(Vec<u8>),
    End(String, String, Result<(), SiteError>),
}

/// Shows passing messages until Ctrl-C.
///
/// # Errors
/// If no proxy can be asked, or all of them end.
pub async fn run(args: &TapArgs) -> Result<(), TapError> {
    let shown: Result<(), TapError> = tokio::select! {
        shown = show(args) => shown,
        _ = ctrl_c() => Ok(()),
    };
    match shown {
        // A closed pipe (`milepost tap | head`) is not an error.
        Err(TapError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        shown => shown,
    }
}

async fn show(args: &TapArgs) -> Result<(), TapError> {
    let (events, mut received) = mpsc::channel(WAITING_MAX);
    let mut tapped = Tapped { args, events, open: 0, known: BTreeSet::new() };
    let named = args.admin.addresses().await.map_err(SiteError::from)?;
    let is_all = named.is_none() || args.admin.is_of_fleet();
    let named = named.map(|addresses| addresses.into_iter().map(Site::at).collect::<Vec<_>>());
    match named {
        None => tapped.begin_all(sites::running().await).await?,
        Some(replicas) if is_all => tapped.begin_all(replicas).await?,
        Some(sites) => {
            for site in sites {
                tapped.begin_one(site).await?;
            }
        }
    }
    let mut page = TapOutput::new(text_form(args));
    let mut last = None;
    while tapped.open > 0 {
        let look = async {
            match is_all {
                true => sleep(LOOK).await,
                false => pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            event = received.recv() => event,
            () = look => {
                tapped.look_again().await;
                continue;
            }
        };
        match event {
            Some(TapEvent::Text(text)) => page.take(&text).await?,
            Some(TapEvent::End(key, name, ended)) => {
                tapped.open -= 1;
                if args.admin.is_of_fleet() {
                    // Forget the process, so that another one with the same key is found.
                    tapped.known.remove(&key);
                }
                if is_all && tapped.open > 0 {
                    eprintln!("milepost: {name} has ended");
                }
                last = Some(ended.map_or_else(TapError::from, |()| TapError::Ended(name)));
            }
            None => break,
        }
    }
    last.map_or(Ok(()), Err)
}

/// The processes whose messages are shown.
struct Tapped<'a> {
    args: &'a TapArgs,
    events: mpsc::Sender<TapEvent>,
    open: usize,
    known: BTreeSet<String>,
}

impl Tapped<'_> {
    async fn ask(&self, site: &mut Site) -> Result<SiteReply, SiteError> {
        site.get(&self.args.target(), if self.args.json { LINES } else { TEXT }).await
    }

    async fn begin_one(&mut self, mut site: Site) -> Result<(), SiteError> {
        let reply = self.ask(&mut site).await?;
        eprintln!("milepost: {}", watching(&reply, &site.name));
        self.follow(site, reply);
        Ok(())
    }

    /// Begins to read from all of these processes; returns the first refusal if no process has such messages.
    async fn begin_all(&mut self, sites: Vec<Site>) -> Result<(), SiteError> {
        let (mut names, mut refusal) = (Vec::new(), None);
        for mut site in sites {
            self.known.insert(site.key());
            match self.ask(&mut site).await {
                Ok(reply) => {
                    names.push(site.name.clone());
                    self.follow(site, reply);
                }
                Err(SiteError::Nobody(..) | SiteError::Stranger(..) | SiteError::Silent(..))
                    if !self.args.admin.is_of_fleet() => {}
                Err(error) => {
                    if self.args.admin.is_of_fleet() {
                        // Forgotten, so that the next search asks the process again.
                        self.known.remove(&site.key());
                    }
                    refusal.get_or_insert(error);
                }
            }
        }
        if names.is_empty() {
            return Err(refusal.unwrap_or(SiteError::Nothing));
        }
        eprintln!("milepost: watching {}, until Ctrl-C", names.join(", "));
        Ok(())
    }

    /// Adds the processes that have started since the last search.
    async fn look_again(&mut self) {
        let is_fleet = self.args.admin.is_of_fleet();
        let found = match sites::folder() {
            _ if is_fleet => {
                let named = self.args.admin.addresses().await.ok().flatten();
                named.into_iter().flatten().map(Site::at).collect()
            }
            Some(folder) => sites::find_new(&folder, &self.known).await,
            None => Vec::new(),
        };
        for mut site in found {
            if !self.known.insert(site.key()) {
                continue;
            }
            let reply = self.ask(&mut site).await;
            if is_fleet && reply.is_err() {
                // Forgotten, so that the next search asks the process again.
                self.known.remove(&site.key());
            }
            if let Ok(reply) = reply {
                eprintln!("milepost: watching {} too", site.name);
                self.follow(site, reply);
            }
        }
    }

    fn follow(&mut self, site: Site, mut reply: SiteReply) {
        self.open += 1;
        let (events, form) = (self.events.clone(), text_form(self.args));
        tasks::spawn(async move {
            let ended = forward(&mut reply, &events, form).await;
            let _ = events.send(TapEvent::End(site.key(), site.name, ended)).await;
        });
    }
}

/// Passes on the messages of a process, each message in one piece.
async fn forward(
    reply: &mut SiteReply,
    events: &mpsc::Sender<TapEvent>,
    form: TextForm,
) -> Result<(), SiteError> {
    let mut held: Vec<u8> = Vec::new();
    loop {
        let wait = if held.is_empty() { Duration::MAX } else { SETTLES };
        let chunk = timeout(wait, reply.chunk()).await;
        let is_over = matches!(chunk, Ok(None));
        let end = match chunk {
            Ok(Some(chunk)) => {
                held.extend_from_slice(&chunk?);
                if held.len() > HELD_MAX { held.len() } else { whole(&held, form) }
            }
            _ => held.len(),
        };
        let text: Vec<u8> = held.drain(..end).collect();
        let is_closed = !text.is_empty() && events.send(TapEvent::Text(text)).await.is_err();
        if is_over || is_closed {
            return Ok(());
        }
    }
}

/// Returns how many bytes of `held` are complete messages. In the text form the last message may still continue.
fn whole(held: &[u8], form: TextForm) -> usize {
    let last = if form == TextForm::Json {
        memchr::memrchr(b'\n', held).map(|at| at + 1)
    } else {
        memchr::memmem::rfind(held, b"\n# ").map(|at| at + 1)
    };
    last.unwrap_or_default()
}

fn text_form(args: &TapArgs) -> TextForm {
    if args.json { TextForm::Json } else { TextForm::Plain }
}

/// Returns the first line of the output: how many routes are watched, and where.
fn watching(reply: &SiteReply, admin: &str) -> String {
    let routes = reply.headers.get(ROUTES_WATCHED).and_then(|count| count.to_str().ok());
    match routes {
        Some("1") => format!("watching 1 route at {admin}, until Ctrl-C"),
        Some(count) => format!("watching {count} routes at {admin}, until Ctrl-C"),
        None => format!("watching {admin}, until Ctrl-C"),
    }
}
/// Standard output.
struct TapOutput {
    out: Stdout,
    form: TextForm,
    has_colours: bool,
    /// The bytes of a line that is not complete yet.
    line: Vec<u8>,
}

impl TapOutput {
    fn new(form: TextForm) -> Self {
        let has_colours =
            io::stdout().is_terminal() && console::colors_enabled() && form == TextForm::Plain;
        Self { out: stdout(), form, has_colours, line: Vec::new() }
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
        let line = printable(line, self.form);
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
