//! `milepost replay`: plays a recorded conversation again, prints the verdict on each message with
//! its reason, and compares the output with the recording.

mod saved_files;
mod table;

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::config::values::exact_time;
use crate::lab::color::Palette;
use crate::lab::recordings::differences::unnumbered;
use crate::lab::recordings::player::{Player, PolicySource};
use crate::lab::recordings::tracks::{ReplayStep, Track, Tracks, input_of, line_text};
use crate::lab::recordings::{self, Recorded, RecordingError, SETTINGS_NEEDED, tracks};
use crate::observe::pointer_watch::PointerFinds;
use crate::observe::transcript::{TranscriptLine, settings, unescape, words};
use crate::progress::Policy;
use crate::progress::input::Input;
use crate::progress::policy::masks::MASK;
use crate::protocol::jsonrpc::Message;
use crate::protocol::order;

pub use saved_files::SavedFiles;
pub use table::ReportCount;

/// Maximum number of differences that are shown.
const SHOWN: usize = 3;

/// The reason why a file cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file is not a recording.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The flags or the route file cannot be used.
    #[error(transparent)]
    Settings(Box<dyn Error + Send + Sync>),
}

/// The form of a replay's result.
#[derive(Debug, Clone, Copy)]
pub enum ReplayForm {
    /// Each line with its verdict, and the differences from the recording.
    Lines,
    /// A transcript for tests.
    Test,
    /// The table of `milepost try`, and the number of reports that the client is shown.
    Table {
        /// The reports of the previous run; `None` to compare with a run that has the recorded settings.
        before: Option<ReportCount>,
        /// The colours of the table.
        colors: Palette,
    },
}

/// The result of a replay.
#[derive(Debug)]
pub struct Played {
    /// The result in its form.
    pub text: String,
    /// Whether the output equals the recording. A table and a transcript for tests are not compared.
    pub is_equal: bool,
    /// The reports that a table shows.
    pub reports: Option<ReportCount>,
}

/// Plays a file. `settings_of` makes the settings from the recorded ones.
///
/// # Errors
/// If the file cannot be read or is not a recording, or the settings cannot be used.
pub fn run<E: Error + Send + Sync + 'static>(
    file: &Path,
    form: ReplayForm,
    settings_of: impl FnOnce(Policy) -> Result<Policy, E>,
) -> Result<Played, ReplayError> {
    let text = recordings::read(file)?;
    let wrong = |fault| ReplayError::from(recordings::at_line(file, &text, fault));
    let recorded = recordings::parse(&text).map_err(wrong)?;
    let policy = recorded.policy().map_err(wrong)?;
    let of_file = settings::write(&policy).words;
    let policy = settings_of(policy).map_err(|error| ReplayError::Settings(error.into()))?;
    let written = settings::write(&policy);
    let is_of_file = written.words == of_file;
    let source = if is_of_file { PolicySource::Recording } else { PolicySource::Other };
    match form {
        ReplayForm::Test => {
            let words = Some(written.words).filter(|words| !words.is_empty());
            let words: Vec<String> = words.into_iter().chain(["summaries".to_owned()]).collect();
            let text = transcript(&recorded, policy, &words).map_err(wrong)?;
            Ok(Played { text, is_equal: true, reports: None })
        }
        ReplayForm::Table { before, colors } => {
            // Settings without words in the file, such as dialects of a route file, may differ too.
            let source = if written.missing.is_empty() { source } else { PolicySource::Other };
            tabulate(&recorded, (policy, source), before, colors).map_err(wrong)
        }
        ReplayForm::Lines => compare(&recorded, (policy, source), file).map_err(wrong),
    }
}

fn put(text: &mut String, lines: impl IntoIterator<Item = impl AsRef<str>>) {
    for line in lines {
        text.push_str(line.as_ref());
        text.push('\n');
    }
}

/// Returns the prefix of a line of one filter: the number of the filter, unless it is the first.
fn of_part(part: u64) -> String {
    if part == 1 { String::new() } else { format!("{part}| ") }
}

fn compare(
    recorded: &Recorded<'_>,
    (policy, source): (Policy, PolicySource),
    path: &Path,
) -> Result<Played, (usize, String)> {
    let conversation = play(recorded, policy, source)?;
    let ReplayedConversation { tracks, steps, .. } = &conversation;
    let mut text = String::new();
    for step in steps {
        let Some(track) = tracks.get(&step.part) else { continue };
        let part = of_part(step.part);
        let said = format!("{part}{}", step.line);
        words::show(&mut text, &said, step.numbers.clone(), &track.player.verdicts);
        put(&mut text, step.out.iter().map(|out| format!("{part}{}", out.text)));
    }
    remarks(&mut text, recorded, &conversation);
    let is_equal = differences(&mut text, tracks, path);
    Ok(Played { text, is_equal, reports: None })
}

/// Returns the table of a replay, with the counts of its reports.
fn tabulate(
    recorded: &Recorded<'_>,
    (policy, source): (Policy, PolicySource),
    before: Option<ReportCount>,
    colors: Palette,
) -> Result<Played, (usize, String)> {
    let before = match before {
        Some(before) => before,
        None => {
            let as_recorded = play(recorded, recorded.policy()?, PolicySource::Recording)?;
            table::write(&as_recorded.tracks, &as_recorded.steps, colors).1
        }
    };
    let conversation = play(recorded, policy, source)?;
    let (mut text, reports) = table::write(&conversation.tracks, &conversation.steps, colors);
    remarks(&mut text, recorded, &conversation);
    put(&mut text, [colors.heading(&reports.text(Some(before)))]);
    Ok(Played { text, is_equal: true, reports: Some(reports) })
}

/// A conversation after the replay.
struct ReplayedConversation {
    tracks: Tracks,
    steps: Vec<ReplayStep>,
    finds: PointerFinds,
    /// The settings of this replay that a recording cannot contain.
    given: Vec<&'static str>,
}

fn play(
    recorded: &Recorded<'_>,
    policy: Policy,
    source: PolicySource,
) -> Result<ReplayedConversation, (usize, String)> {
    let policy = Arc::new(policy);
    let given = settings::write(&policy).missing;
    let mut finds = PointerFinds::default();
    let (tracks, steps) = tracks::play(recorded, (&policy, source), |_, line, _, _| {
        if line.sign == b'<'
            && let Ok(text) = unescape(line.text)
        {
            finds.see(&policy, &Message::parse(text.into_owned().into()));
        }
    })?;
    Ok(ReplayedConversation { tracks, steps, finds, given })
}

/// Writes the limits of the result, the pointers that found nothing, and the numbers of messages.
fn remarks(text: &mut String, recorded: &Recorded<'_>, conversation: &ReplayedConversation) {
    text.push('\n');
    put(text, recorded.remarks.iter().filter_map(|remark| still_true(remark, &conversation.given)));
    put(text, conversation.finds.missed().iter().map(ToString::to_string));
    let players = || conversation.tracks.values().map(|track| &track.player);
    let passed = players().map(Player::time).max().unwrap_or_default();
    let verdicts = || players().flat_map(|player| player.verdicts.values());
    let beats = players().map(|player| player.beats).sum();
    let _ = writeln!(text, "{} passed; {}", exact_time(passed), words::count(verdicts, beats));
}

/// Returns a remark of a recording as it applies to a replay with the `given` settings. The remark on settings names
/// only those that are not given, and is `None` if all of them are.
fn still_true<'a>(remark: &'a str, given: &[&str]) -> Option<Cow<'a, str>> {
    let Some(needed) = remark.strip_prefix(SETTINGS_NEEDED) else { return Some(remark.into()) };
    let lacking: Vec<&str> = needed.split(", ").filter(|name| !given.contains(name)).collect();
    let names = lacking.join(", ");
    (!lacking.is_empty()).then(|| {
        format!("the recording was made with settings that this replay lacks: {names} (give flags or --config)")
            .into()
    })
}

/// Writes the differences between the output and the recording. Returns true if there are none.
fn differences(text: &mut String, tracks: &Tracks, path: &Path) -> bool {
    let mut differ: Vec<(usize, String)> = Vec::new();
    for (part, Track { expected, actual, ends, .. }) in tracks {
        let part = of_part(*part);
        // If the recording ends early, the expected lines after its end are unknown, so they are not compared.
        let all = if *ends { expected.len().max(actual.len()) } else { expected.len() };
        for at in 0..all {
            let (recorded, now) = (expected.get(at), actual.get(at));
            let same = recorded.zip(now).is_some_and(|((_, recorded), now)| is_same(recorded, now));
            if same {
                continue;
            }
            let place = recorded.map_or_else(|| "the end".to_owned(), |(line, _)| line.to_string());
            let was = recorded.map_or("(nothing)", |(_, text)| text);
            let is = now.map_or("(nothing)", |text| text);
            let path = path.display();
            differ.push((
                recorded.map_or(usize::MAX, |(line, _)| *line),
                format!("{path}:{place}: differs\n  recorded: {part}{was}\n  now:      {part}{is}"),
            ));
        }
    }
    order::sort_by_key(&mut differ, |(line, _)| *line);
    put(text, differ.iter().take(SHOWN).map(|(_, how)| how));
    let _ = match differ.len() {
        0 => writeln!(text, "it came out as it was recorded"),
        1 => writeln!(text, "it came out otherwise than it was recorded, in one place"),
        differ => writeln!(text, "it came out otherwise than it was recorded, in {differ} places"),
    };
    differ.is_empty()
}

/// Whether two lines are equal except for the numbers of masks. The numbers differ because a server's text is masked
/// again before a client gets it.
fn is_same(one: &str, other: &str) -> bool {
    one == other || (one.contains(MASK) && unnumbered(one) == unnumbered(other))
}

/// Returns the conversation as a transcript for tests, with the output of this run.
fn transcript(
    recorded: &Recorded<'_>,
    policy: Policy,
    words: &[String],
) -> Result<String, (usize, String)> {
    let mut text = String::from("# A recorded conversation.\n");
    put(&mut text, words.iter().map(|words| format!("! {words}")));
    let begins = |line: &TranscriptLine<'_>| matches!(input_of(line), Some(Input::Begin(_)));
    if let Some((number, _)) = recorded.lines.iter().find(|(_, line)| begins(line)) {
        let why = "several streams of clients begin here; a transcript of tests is printed of one client on \
                   one stream (`wrap`, or HTTP+SSE to HTTP+SSE)";
        return Err((*number, why.to_owned()));
    }
    let mut player = Player::new(&Arc::new(policy), None, Instant::now());
    let mut lines = recorded.lines.iter().peekable();
    while let Some((number, line)) = lines.next() {
        let wrong = |expected| (*number, expected);
        let kept = matches!(input_of(line), Some(Input::CloseClients | Input::CloseServer(_)));
        match line.sign {
            b'+' => {
                player.pass_exactly(line.text).map_err(wrong)?;
                let _ = writeln!(text, "{}", line_text(line));
            }
            b'>' => {
                player.input(line).map_err(wrong)?;
                let pair =
                    lines.next_if(|(_, next)| matches!(input_of(next), Some(Input::Pair(..))));
                match pair {
                    Some((number, pair)) => {
                        player.input(pair).map_err(|expected| (*number, expected))?;
                        let stream = pair.text.split(' ').next_back().unwrap_or_default();
                        let _ = writeln!(text, ">@{stream} {}", line.text);
                    }
                    None => drop(writeln!(text, "{}", line_text(line))),
                }
                player.drain();
            }
            b'<' | b'2' | b'!' if line.sign != b'!' || kept => {
                player.input(line).map_err(wrong)?;
                player.drain();
                let _ = writeln!(text, "{}", line_text(line));
            }
            _ => {}
        }
        let out = player.take().into_iter().map(|line| line.text).collect();
        put(&mut text, in_order(out, line.sign));
    }
    Ok(text)
}

/// The output in the order of tests: changed client messages, messages to clients, other messages
/// to the server, verdicts; the same order at each time. `sign`: the sign of the line that led to the output.
fn in_order(mut out: Vec<String>, sign: u8) -> Vec<String> {
    let mut of_client = sign == b'>';
    for group in out.chunk_by_mut(|_, next| !next.starts_with('@')) {
        group.sort_by_cached_key(|line| match line.as_bytes().first() {
            Some(b'@' | b'e') => 0,
            Some(b'^') if std::mem::take(&mut of_client) => 0,
            Some(b'=') => 1,
            Some(b'^') => 2,
            _ => 3,
        });
    }
    out
}
