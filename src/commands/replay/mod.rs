//! `milepost replay`: plays a recorded conversation again, prints the verdict on each message with
//! its reason, and compares the output with the recording.

mod player;
mod saved_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::commands::args::{ReplayArgs, WrapError};
use crate::config::values::exact_time;
use crate::observe::pointer_watch::PointerFinds;
use crate::observe::transcript::{LineStream, SAME, TranscriptLine, settings, unescape, words};
use crate::progress::input::Input;
use crate::progress::policy::masks::MASK;
use crate::progress::{Policy, StreamId};
use crate::protocol::jsonrpc::Message;
use crate::relay::SOLE_STREAM;
use player::Player;

pub use saved_files::SavedFiles;

/// Bytes of a file that `replay` reads: more than any recording has.
const FILE_MAX: u64 = 256 << 20;

/// Differences that are shown.
const SHOWN: usize = 3;

/// The reason why a file cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not a recording.
    #[error("{}:{line}: {expected}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The expected content.
        expected: String,
    },
    /// The flags or the route file cannot be used.
    #[error(transparent)]
    Settings(#[from] WrapError),
}

/// The result of a replay.
#[derive(Debug)]
pub struct Played {
    /// Each message with its verdict, or a transcript for tests.
    pub text: String,
    /// Whether the output equals the recording.
    pub is_equal: bool,
}

/// A recording, read.
struct Recorded<'a> {
    /// The words of the settings, each with its line.
    settings: Vec<(usize, &'a str)>,
    /// The events, each with the number of its line.
    lines: Vec<(usize, TranscriptLine<'a>)>,
    /// Remarks that limit the result of a replay.
    remarks: Vec<&'a str>,
}

/// Plays a file.
///
/// # Errors
/// If it cannot be read or is no recording, or the settings cannot be used.
pub fn run(args: &ReplayArgs) -> Result<Played, ReplayError> {
    let text = read(&args.file)?;
    let wrong = |(line, expected)| ReplayError::Line { path: args.file.clone(), line, expected };
    let recorded = parse(&text).map_err(wrong)?;
    let mut policy = Policy::default();
    for (number, said) in &recorded.settings {
        let read = settings::read(&mut policy, said);
        read.map_err(|expected| wrong((*number, expected)))?;
    }
    let of_file = settings::write(&policy).words;
    if args.has_config() {
        policy = Policy::default();
    }
    args.apply(&mut policy)?;
    let eager = settings::write(&policy).words != of_file;
    if args.as_test {
        let written = settings::write(&policy);
        let words = Some(written.words).filter(|words| !words.is_empty());
        let words: Vec<String> = words.into_iter().chain(["summaries".to_owned()]).collect();
        let text = as_test(&recorded, policy, &words).map_err(wrong)?;
        return Ok(Played { text, is_equal: true });
    }
    compare(&recorded, (policy, eager), &args.file).map_err(wrong)
}

fn read(path: &Path) -> Result<String, ReplayError> {
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|file| file.take(FILE_MAX).read_to_end(&mut bytes));
    file.map_err(|source| ReplayError::Read { path: path.to_owned(), source })?;
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        ReplayError::Line {
            path: path.to_owned(),
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            expected: "text is expected (UTF-8)".to_owned(),
        }
    })
}

fn parse(text: &str) -> Result<Recorded<'_>, (usize, String)> {
    let mut recorded = Recorded { settings: Vec::new(), lines: Vec::new(), remarks: Vec::new() };
    let mut failed: BTreeSet<u64> = BTreeSet::new();
    let mut last = BTreeMap::new();
    for (number, text) in (1..).zip(text.lines()) {
        if let Some(remark) = text.strip_prefix("# ") {
            recorded.remarks.extend(limits(remark));
        }
        let Some(mut line) = TranscriptLine::read(text).map_err(|expected| (number, expected))?
        else {
            continue;
        };
        if b"><".contains(&line.sign) {
            if line.text == SAME {
                let said = last.get(&line.sign).copied();
                line.text =
                    said.ok_or_else(|| (number, "an earlier message is expected".to_owned()))?;
            }
            last.insert(line.sign, line.text);
        }
        let is_setting = line.sign == b'!' && line.text.split(' ').all(|word| word.contains('='));
        if is_setting && !recorded.lines.is_empty() {
            return Err((number, "settings are expected before the first message".to_owned()));
        }
        if is_setting {
            recorded.settings.push((number, line.text));
        } else if matches!(input_of(&line), Some(Input::FailOpen)) {
            recorded.remarks.push("a filter failed, and nothing of it was recorded from there on");
            failed.insert(line.part);
        } else if !failed.contains(&line.part) {
            recorded.lines.push((number, line));
        }
    }
    if recorded.lines.is_empty() {
        return Err((1, "a conversation is expected; this file has no message".to_owned()));
    }
    Ok(recorded)
}

/// The limit that a remark describes, if it describes one.
fn limits(remark: &str) -> Option<&str> {
    if remark.contains(" lines are missing") {
        return Some("lines are missing from the recording");
    }
    let said = ["a replay needs", "calls of another recording", "the recording is as long as"];
    said.iter().any(|said| remark.starts_with(said)).then_some(remark)
}

/// An input, and the output that followed.
struct ReplayStep {
    part: u64,
    line: String,
    /// The server's messages in it.
    numbers: Range<u64>,
    out: Vec<String>,
}

/// One filter of the conversation.
struct Track {
    player: Player,
    /// The recorded output, with its lines.
    expected: Vec<(usize, String)>,
    /// The present output.
    actual: Vec<String>,
    /// The last step of the call.
    step: Option<usize>,
    /// Whether the recording is complete.
    ends: bool,
}

impl Track {
    /// Adds new output to the last step, or to a new step.
    fn take(&mut self, steps: &mut Vec<ReplayStep>, step: Option<ReplayStep>) {
        let out = self.player.take();
        self.actual.extend(out.iter().cloned());
        if let Some(step) = step {
            self.step = Some(steps.len());
            steps.push(step);
        }
        if let Some(step) = self.step.and_then(|at| steps.get_mut(at)) {
            step.out.extend(out);
        }
    }
}

fn put(text: &mut String, lines: impl IntoIterator<Item = impl AsRef<str>>) {
    for line in lines {
        text.push_str(line.as_ref());
        text.push('\n');
    }
}

fn line_text(line: &TranscriptLine<'_>) -> String {
    let at = match line.at {
        LineStream::Only => String::new(),
        LineStream::Nowhere => "-".to_owned(),
        LineStream::Stream(stream) => stream.to_string(),
        LineStream::Client(stream) => format!("@{stream}"),
    };
    format!("{}{at} {}", char::from(line.sign), line.text)
}

/// Lines of one filter begin with its number, but for those of the first.
fn of_part(part: u64) -> String {
    if part == 1 { String::new() } else { format!("{part}| ") }
}

/// The input of a line without a message.
fn input_of(line: &TranscriptLine<'_>) -> Option<Input> {
    (line.sign == b'!').then(|| Input::read(line.text, None).ok()).flatten()
}

/// For each line, the streams that a later line marks as written. A stream without such a line was
/// written at once.
fn written_later(lines: &[(usize, TranscriptLine<'_>)]) -> Vec<BTreeSet<StreamId>> {
    let mut named: BTreeMap<u64, BTreeSet<StreamId>> = BTreeMap::new();
    let mut later = Vec::with_capacity(lines.len());
    for (_, line) in lines.iter().rev() {
        let named = named.entry(line.part).or_default();
        if !b"=x~^e+".contains(&line.sign) {
            match input_of(line) {
                Some(Input::MarkUnread(stream) | Input::MarkWritten(stream)) => {
                    named.insert(stream);
                }
                _ => named.clear(),
            }
        }
        later.push(named.clone());
    }
    later.reverse();
    later
}

/// The filters of a conversation, by their numbers in the file.
type Tracks = BTreeMap<u64, Track>;

/// The filter of a line, and whether the filter begins with this line.
fn track<'a>(
    tracks: &'a mut Tracks,
    line: &TranscriptLine<'_>,
    start: Instant,
    (policy, eager): (&Arc<Policy>, bool),
) -> Result<(&'a mut Track, bool), String> {
    let is_known = tracks.contains_key(&line.part);
    let begins = match input_of(line) {
        Some(Input::Begin(_)) if is_known => return Err("this part has begun before".to_owned()),
        Some(Input::Begin(begins)) => Some(begins),
        _ if !is_known && line.part != 1 => {
            return Err("a line `! begins ...` of this part is expected before".to_owned());
        }
        _ => None,
    };
    let track = tracks.entry(line.part).or_insert_with(|| {
        let mut player = Player::new(policy, begins, start);
        player.eager = eager;
        Track { player, expected: Vec::new(), actual: Vec::new(), step: None, ends: false }
    });
    Ok((track, begins.is_some()))
}

fn compare(
    recorded: &Recorded<'_>,
    (policy, eager): (Policy, bool),
    path: &Path,
) -> Result<Played, (usize, String)> {
    let (policy, start) = (Arc::new(policy), Instant::now());
    let mut tracks = Tracks::new();
    let mut steps: Vec<ReplayStep> = Vec::new();
    let later = written_later(&recorded.lines);
    let mut finds = PointerFinds::default();
    for ((number, line), later) in recorded.lines.iter().zip(&later) {
        let wrong = |expected| (*number, expected);
        let mut from = match input_of(line) {
            Some(Input::TakeOver(from, on)) => {
                let expected = || wrong("the number of another filter is expected".to_owned());
                let other = tracks.remove(&from).filter(|_| from != line.part);
                Some((from, on, other.ok_or_else(expected)?))
            }
            _ => None,
        };
        let (track, begins) = track(&mut tracks, line, start, (&policy, eager)).map_err(wrong)?;
        let is_out = b"=x~^e".contains(&line.sign);
        let player = &mut track.player;
        if !is_out {
            player.written(later);
        }
        let mut numbers = 0..0;
        if line.sign == b'<'
            && let Ok(text) = unescape(line.text)
        {
            finds.see(&policy, &Message::parse(text.into_owned().into()));
        }
        match line.sign {
            b'=' => player.write_recorded(line.at),
            // What was decided when nothing was told.
            b'x' | b'~' if track.actual.len() <= track.expected.len() => {
                let _ = player.poll(SOLE_STREAM);
            }
            b'x' | b'~' | b'^' | b'e' => {}
            b'+' => player.pass(line.text).map_err(wrong)?,
            _ if begins => {}
            b'!' if matches!(input_of(line), Some(Input::End)) => {
                player.end();
                track.ends = true;
            }
            _ => match &mut from {
                Some((_, on, other)) => player.take_over(&mut other.player, *on),
                None => numbers = player.input(line).map_err(wrong)?,
            },
        }
        let part = line.part;
        if is_out {
            track.expected.push((*number, line_text(line)));
        }
        let step = match track.step {
            Some(_) if is_out => None,
            None if is_out => {
                let line = "# before anything was said".to_owned();
                Some(ReplayStep { part, line, numbers, out: Vec::new() })
            }
            _ => Some(ReplayStep { part, line: line_text(line), numbers, out: Vec::new() }),
        };
        track.take(&mut steps, step);
        tracks.extend(from.map(|(number, _, track)| (number, track)));
    }
    Ok(shown(recorded, &tracks, &steps, (path, &finds)))
}

/// The summary of a replay.
fn shown(
    recorded: &Recorded<'_>,
    tracks: &Tracks,
    steps: &[ReplayStep],
    (path, finds): (&Path, &PointerFinds),
) -> Played {
    let mut text = String::new();
    for step in steps {
        let Some(track) = tracks.get(&step.part) else { continue };
        let part = of_part(step.part);
        let said = format!("{part}{}", step.line);
        words::show(&mut text, &said, step.numbers.clone(), &track.player.verdicts);
        put(&mut text, step.out.iter().map(|out| format!("{part}{out}")));
    }
    text += "\n";
    for remark in &recorded.remarks {
        let _ = writeln!(text, "{remark}");
    }
    put(&mut text, finds.missed().iter().map(ToString::to_string));
    let players = || tracks.values().map(|track| &track.player);
    let passed = players().map(Player::time).max().unwrap_or_default();
    let verdicts = || players().flat_map(|player| player.verdicts.values());
    let beats = players().map(|player| player.beats).sum();
    let _ = writeln!(text, "{} passed; {}", exact_time(passed), words::count(verdicts, beats));
    let is_equal = differences(&mut text, tracks, path);
    Played { text, is_equal }
}

/// Writes the differences between the output and the recording; true if there are none.
fn differences(text: &mut String, tracks: &Tracks, path: &Path) -> bool {
    let mut differ: Vec<(usize, String)> = Vec::new();
    for (part, Track { expected, actual, ends, .. }) in tracks {
        let part = of_part(*part);
        // Where the recording breaks off, what followed is not known.
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
    differ.sort_by_key(|(line, _)| *line);
    put(text, differ.iter().take(SHOWN).map(|(_, how)| how));
    let _ = match differ.len() {
        0 => writeln!(text, "it came out as it was recorded"),
        1 => writeln!(text, "it came out otherwise than it was recorded, in one place"),
        differ => writeln!(text, "it came out otherwise than it was recorded, in {differ} places"),
    };
    differ.is_empty()
}

/// Whether two lines are equal except for the numbers of masks: text of a server is masked again
/// before a client gets it.
fn is_same(one: &str, other: &str) -> bool {
    one == other || (one.contains(MASK) && unnumbered(one) == unnumbered(other))
}

fn unnumbered(line: &str) -> String {
    let mut parts = line.split(MASK);
    let first = parts.next().unwrap_or_default().to_owned();
    parts
        .fold(first, |all, part| all + MASK + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// The conversation as a transcript for tests, with the present output.
fn as_test(
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
        put(&mut text, in_order(player.take(), line.sign == b'>'));
    }
    Ok(text)
}

/// The output in the order of tests: changed client messages, messages to clients, other messages
/// to the server, verdicts; the same order at each time.
fn in_order(mut out: Vec<String>, mut of_client: bool) -> Vec<String> {
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
