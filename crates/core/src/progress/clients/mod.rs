//! Known clients by their `clientInfo`, and advice for calls that can get no progress.
//!
//! All facts are in one table (`table`), with a row for each client; a test makes `docs/clients.md` from the table. An
//! unknown fact stays unknown: wrong advice costs more than no advice.

mod table;

use std::fmt;
use std::time::Duration;

pub use table::CLIENTS;

/// Limit of the characters that are kept of a client's name, and of its version. A longer name would fill the log.
pub const NAME_MAX: usize = 64;

/// The name and version that a client states, made safe for a log: one line of at most [`NAME_MAX`] characters for each
/// part, without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    name: Box<str>,
    version: Box<str>,
}

impl Client {
    /// Returns a client with this name and version; `None` if the name is empty.
    pub fn new(name: &str, version: &str) -> Option<Self> {
        let name = fit(name);
        (!name.is_empty()).then(|| Self { name, version: fit(version) })
    }

    /// The name of the client.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of the client, which may be empty.
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.version.is_empty() { Ok(()) } else { write!(f, " {}", self.version) }
    }
}

/// Returns the part of a text from an unknown client that may appear in a log.
fn fit(text: &str) -> Box<str> {
    let text = text.trim();
    let plain = |sign: char| if is_unprintable(sign) { char::REPLACEMENT_CHARACTER } else { sign };
    let mut fit: String = text.chars().take(NAME_MAX).map(plain).collect();
    if text.chars().nth(NAME_MAX).is_some() {
        fit.pop();
        fit.push('…');
    }
    fit.into()
}

/// Whether a character moves or hides other text: control characters, line ends, changes of
/// direction, characters without width.
pub fn is_unprintable(sign: char) -> bool {
    sign.is_control()
        || matches!(sign, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(sign, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        || matches!(sign, '\u{e0000}'..='\u{e0fff}')
}

/// Whether a client has an ability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// The client does so.
    Yes,
    /// The client does not do so.
    No,
    /// The client does so under a condition, written as the end of a sentence that begins "it does".
    If(&'static str),
    /// The client has not been examined.
    Unknown,
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::If(when) => when,
            Self::Unknown => "unknown",
        })
    }
}

/// The facts about one client.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The usual name of the client.
    pub client: &'static str,
    /// The values of `clientInfo.name`. Empty for libraries whose application chooses the name.
    pub names: &'static [&'static str],
    /// `clientInfo.version`, if the name alone does not identify the client.
    pub version: Option<&'static str>,
    /// Whether the client's `tools/call` has a progress token.
    pub token: Support,
    /// Whether the client shows progress to its user.
    pub shows: Support,
    /// Whether progress resets the client's timer.
    pub resets: Support,
    /// The default limits for one call; empty if unknown.
    pub limits: &'static str,
    /// Whether the client handles a notification and an immediately following response in the order of their arrival,
    /// so that Milepost needs no pause between them. Measured by writing both together, a few hundred times.
    pub orderly: bool,
    /// Whether the client fails on a `message` in progress of 2024-11-05, where `message` is an unknown member.
    /// Most clients ignore members that they do not know.
    pub fails_on_words: bool,
    /// The settings of the client that help, as a sentence.
    pub set: &'static str,
    /// The date of these facts.
    pub as_of: &'static str,
}

/// Whether messages to a client of exactly this name and version need no pauses. The name must be exact: a relay that
/// appends its own name handles messages in another way.
pub fn is_orderly(name: &str, version: &str) -> bool {
    let is =
        |row: &Row| row.names.contains(&name) && row.version.is_none_or(|only| only == version);
    CLIENTS.iter().any(|row| row.orderly && is(row))
}

/// Returns the row of a client: the row with its name, or with the longest name whose words its name contains, in any
/// spelling. `Visual Studio Code - Insiders` and `claude-code (via mcp-remote 0.1.37)` are found.
pub fn find(name: &str, version: &str) -> Option<&'static Row> {
    let own = plain_text(name);
    let mut best: Option<(usize, &Row)> = None;
    for row in CLIENTS {
        for known in row.names.iter().map(|known| plain_text(known)) {
            let fits = match row.version {
                Some(only) => known == own && only == version,
                None => own.contains(&*known),
            };
            // If two known names are prefixes of the name, the longer name is more exact.
            if fits && best.is_none_or(|(length, _)| known.len() > length) {
                best = Some((known.len(), row));
            }
        }
    }
    best.map(|(_, row)| row)
}

/// Returns the row of the client that people call by this name: the row with this title, in any spelling, or the only
/// row whose title has all words of the name.
pub fn titled(name: &str) -> Option<&'static Row> {
    let name = plain_text(name);
    if name.trim().is_empty() {
        return None;
    }
    if let Some(row) = CLIENTS.iter().find(|row| plain_text(row.client) == name) {
        return Some(row);
    }
    // With spaces around each word, `contains` compares whole words only.
    let mut fitting = CLIENTS.iter().filter(|row| plain_text(row.client).contains(&*name));
    let first = fitting.next()?;
    fitting.next().is_none().then_some(first)
}

/// Whether the client never gets the error of a failed task, because it does not request `tasks/result` for failed
/// tasks: VS Code (October 2026).
pub(crate) fn drops_failed_tasks(client: &Client) -> bool {
    find(client.name(), client.version()).is_some_and(|row| row.client == "VS Code")
}

/// Whether the client loses progress of 2024-11-05 that has a `message` ([`Row::fails_on_words`]). A relay that appends
/// its own name passes the `message` on to such a client.
pub(crate) fn fails_on_words(client: &Client) -> bool {
    // Names are compared only if such a client exists, because each report that needs a repair calls this.
    CLIENTS.iter().any(|row| row.fails_on_words)
        && find(client.name(), client.version()).is_some_and(|row| row.fails_on_words)
}

/// For clients whose default limit for a call is known and is not a minute: the age of a call, in seconds, at which
/// `late.tell` answers. The age is a little below the limit ([`CLIENTS`]).
const TOLD_AT: [(&str, u64); 5] = [
    ("Gemini CLI", 590),
    ("GitHub Copilot CLI", 27),
    ("goose", 290),
    ("LibreChat", 27),
    ("Spring AI", 18),
];

/// Returns the age of a call at which `late.tell` answers a client, if the client's limit is known.
pub(crate) fn told_at(client: &Client) -> Option<Duration> {
    let row = find(client.name(), client.version())?;
    let known = TOLD_AT.iter().find(|(name, _)| *name == row.client);
    known.map(|(_, seconds)| Duration::from_secs(*seconds))
}

/// Returns the words of a name in lower case, separated and surrounded by spaces: ` visual studio code `.
fn plain_text(name: &str) -> String {
    let name = name.to_lowercase();
    let parts = name.split(|sign: char| !sign.is_alphanumeric()).filter(|part| !part.is_empty());
    parts.fold(" ".to_owned(), |words, part| words + part + " ")
}

/// The situation that calls for advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Situation {
    /// A `tools/call` without a progress token: no progress may be sent.
    NoToken,
    /// A call that its client gave up, with or without a cancellation, although it received progress.
    GivenUp,
}

/// Advice for the user of a client: the client's behaviour, and the settings that help. Displayed as sentences on one
/// line.
#[derive(Debug, Clone, Copy)]
pub struct Advice {
    row: Option<&'static Row>,
    situation: Situation,
}

/// Returns advice for the user of a client; general advice if the client is unknown.
pub fn advice(name: &str, version: &str, situation: Situation) -> Advice {
    Advice { row: find(name, version), situation }
}

impl Advice {
    /// The facts about the client.
    pub fn row(&self) -> Option<&'static Row> {
        self.row
    }

    /// Whether the client is known to wait for a fixed time, with or without progress.
    pub fn waits_a_fixed_time(&self) -> bool {
        self.row.is_some_and(|row| row.resets == Support::No)
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(row) = self.row else {
            return f.write_str(match self.situation {
                Situation::NoToken => {
                    "this client has sent no progress token with its call, so no progress may be sent \
                     to it; look in the client for a progress callback, or for its time limit of a \
                     tool call"
                }
                Situation::GivenUp => {
                    "this client has given up a call although it received progress; look in the \
                     client for its time limit of a tool call"
                }
            });
        };
        let client = row.client;
        match (self.situation, row.token) {
            (Situation::NoToken, Support::Yes) => {
                write!(f, "{client} sends progress tokens, but none with this call")?;
            }
            (Situation::NoToken, Support::No) => write!(f, "{client} sends no progress tokens")?,
            (Situation::NoToken, Support::If(when)) => {
                write!(f, "{client} sends progress tokens {when}; this call has none")?;
            }
            (Situation::NoToken, Support::Unknown) => {
                write!(f, "{client} has sent no progress token with this call")?;
            }
            (Situation::GivenUp, _) => {
                write!(f, "{client} has given up a call although it received progress: ")?;
                match row.resets {
                    Support::Yes => f.write_str("progress resets its timer"),
                    Support::No => {
                        f.write_str("it waits for a fixed time, with or without progress")
                    }
                    Support::If(when) => write!(f, "progress resets its timer {when}"),
                    Support::Unknown => f.write_str("whether progress resets its timer is unknown"),
                }?;
            }
        }
        if self.situation == Situation::NoToken {
            f.write_str(", so no progress may be sent to it")?;
        }
        if !row.limits.is_empty() {
            write!(f, "; its limits: {}", row.limits)?;
        }
        write!(f, ". {} (As of {}.)", row.set, row.as_of)
    }
}
