//! `milepost replay`: plays a recorded conversation again, says what became of each message and why, and
//! whether that is what was recorded.

mod player;

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::cli::{Replay, WrapError};
use crate::progress::Policy;
use crate::progress::mask::MASK;
use crate::transcript::{Line, settings, words};
use player::Player;

/// Bytes of a file that is played: more than any recording has, however much of it was no text.
const FILE_MAX: u64 = 256 << 20;

/// Differences that are shown.
const SHOWN: usize = 3;

/// Why a file cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("{}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no recording.
    #[error("{}:{line}: {expected}", path.display())]
    Line {
        /// Which.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is expected there.
        expected: String,
    },
    /// The flags or the route file cannot be used.
    #[error(transparent)]
    Settings(#[from] WrapError),
}

/// What a replay has shown.
#[derive(Debug)]
pub struct Played {
    /// Each message and what became of it, or a transcript for tests.
    pub text: String,
    /// It came out as it was recorded.
    pub is_equal: bool,
}

/// A recording, read.
struct Recorded<'a> {
    /// The words of its settings, and on which line they are.
    settings: Vec<(usize, &'a str)>,
    /// What happened, each with the number of its line.
    lines: Vec<(usize, Line<'a>)>,
    /// What limits what a replay can show.
    remarks: Vec<&'a str>,
}

/// Plays a file.
///
/// # Errors
/// If it cannot be read or is no recording, or the settings cannot be used.
pub fn run(args: &Replay) -> Result<Played, ReplayError> {
    let text = read(&args.file)?;
    let wrong = |(line, expected)| ReplayError::Line { path: args.file.clone(), line, expected };
    let recorded = parse(&text).map_err(wrong)?;
    let mut policy = Policy::default();
    if !args.has_config() {
        for (number, said) in &recorded.settings {
            let read = settings::read(&mut policy, said);
            read.map_err(|expected| wrong((*number, expected)))?;
        }
    }
    args.apply(&mut policy)?;
    if args.as_test {
        let written = settings::write(&policy);
        let words = Some(written.words).filter(|words| !words.is_empty());
        let words: Vec<String> = words.into_iter().chain(["summaries".to_owned()]).collect();
        let text = as_test(&recorded, policy, &words).map_err(wrong)?;
        return Ok(Played { text, is_equal: true });
    }
    compare(&recorded, policy, &args.file).map_err(wrong)
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
    for (number, text) in (1..).zip(text.lines()) {
        if text.starts_with("# ") && text.contains(" lines are missing") {
            recorded.remarks.push("lines are missing from the recording");
        }
        if let Some(needs) =
            text.strip_prefix("# ").filter(|text| text.starts_with("a replay needs"))
        {
            recorded.remarks.push(needs);
        }
        let Some(line) = Line::read(text).map_err(|expected| (number, expected))? else { continue };
        let is_setting = line.sign == b'!' && line.text.split(' ').all(|word| word.contains('='));
        if is_setting && !recorded.lines.is_empty() {
            return Err((number, "settings are expected before the first message".to_owned()));
        }
        if is_setting {
            recorded.settings.push((number, line.text));
        } else if line.sign == b'!' && line.text == "failed" {
            recorded.remarks.push("the filter failed, and nothing was recorded from there on");
            break;
        } else {
            recorded.lines.push((number, line));
        }
    }
    if recorded.lines.is_empty() {
        return Err((1, "a conversation is expected; nothing is said here".to_owned()));
    }
    Ok(recorded)
}

/// Something that came in, and what came out then.
struct Step {
    said: String,
    /// The server's messages in it.
    numbers: Range<u64>,
    out: Vec<String>,
}

fn put(text: &mut String, lines: impl IntoIterator<Item = impl AsRef<str>>) {
    for line in lines {
        text.push_str(line.as_ref());
        text.push('\n');
    }
}

fn said(line: &Line<'_>) -> String {
    let stream = line.stream.map(|stream| stream.to_string()).unwrap_or_default();
    format!("{}{stream} {}", char::from(line.sign), line.text)
}

fn compare(
    recorded: &Recorded<'_>,
    policy: Policy,
    path: &Path,
) -> Result<Played, (usize, String)> {
    let mut player = Player::new(policy);
    let mut expected: Vec<(usize, String)> = Vec::new();
    let mut actual: Vec<String> = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    for (at, (number, line)) in recorded.lines.iter().enumerate() {
        let is_out = b"=x~^e".contains(&line.sign);
        let is = |line: &Line<'_>, command| line.sign == b'!' && line.text == command;
        // Where it is not said when a client has taken what it was told, it was at once.
        let mut rest = recorded.lines.iter().skip(at).map(|(_, line)| line);
        let next = rest.find(|line| !b"=x~^e+".contains(&line.sign));
        let is_said = is(line, "waits") || next.is_some_and(|next| is(next, "written"));
        if !is_out && !is_said {
            player.written();
        }
        let mut numbers = 0..0;
        let wrong = |expected| (*number, expected);
        match line.sign {
            b'=' => player.tell(),
            // What was decided when nothing was told.
            b'x' | b'~' if actual.len() <= expected.len() => drop(player.poll()),
            b'x' | b'~' | b'^' | b'e' => {}
            b'+' => player.pass(line.text).map_err(wrong)?,
            _ => numbers = player.input(line).map_err(wrong)?,
        }
        let out = player.take();
        actual.extend(out.iter().cloned());
        if is_out {
            expected.push((*number, said(line)));
        }
        match steps.last_mut() {
            Some(step) if is_out => step.out.extend(out),
            _ => {
                let said =
                    if is_out { "# before anything was said".to_owned() } else { said(line) };
                steps.push(Step { said, numbers, out });
            }
        }
    }
    player.written();
    player.drain();
    let out = player.take();
    actual.extend(out.iter().cloned());
    if let Some(step) = steps.last_mut() {
        step.out.extend(out);
    }
    let mut text = String::new();
    for step in &steps {
        words::show(&mut text, &step.said, step.numbers.clone(), &player.verdicts);
        put(&mut text, &step.out);
    }
    text += "\n";
    for remark in &recorded.remarks {
        let _ = writeln!(text, "{remark}");
    }
    let _ = writeln!(text, "{} passed; {}", crate::transcript::time(player.time()), {
        words::count(&player.verdicts)
    });
    let is_equal = differences(&mut text, &expected, &actual, path);
    Ok(Played { text, is_equal })
}

/// Says where what came out is not what was recorded; whether that is nowhere.
fn differences(
    text: &mut String,
    expected: &[(usize, String)],
    actual: &[String],
    path: &Path,
) -> bool {
    let mut differ = 0;
    for at in 0..expected.len().max(actual.len()) {
        let (recorded, now) = (expected.get(at), actual.get(at));
        let same = recorded.zip(now).is_some_and(|((_, recorded), now)| is_same(recorded, now));
        if same {
            continue;
        }
        differ += 1;
        if differ <= SHOWN {
            let place = recorded.map_or_else(|| "the end".to_owned(), |(line, _)| line.to_string());
            let was = recorded.map_or("(nothing)", |(_, text)| text);
            let is = now.map_or("(nothing)", |text| text);
            let _ = writeln!(
                text,
                "{}:{place}: differs\n  recorded: {was}\n  now:      {is}",
                path.display()
            );
        }
    }
    let _ = match differ {
        0 => writeln!(text, "it came out as it was recorded"),
        1 => writeln!(text, "it came out otherwise than it was recorded, in one place"),
        differ => writeln!(text, "it came out otherwise than it was recorded, in {differ} places"),
    };
    differ == 0
}

/// Whether two lines say the same, the numbers of masks not counted: text of a server is masked once more
/// before a client is shown it.
fn is_same(one: &str, other: &str) -> bool {
    one == other || (one.contains(MASK) && unnumbered(one) == unnumbered(other))
}

fn unnumbered(line: &str) -> String {
    let mut parts = line.split(MASK);
    let first = parts.next().unwrap_or_default().to_owned();
    parts
        .fold(first, |all, part| all + MASK + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// The conversation as a transcript of tests: what comes out is what comes out now.
fn as_test(
    recorded: &Recorded<'_>,
    policy: Policy,
    words: &[String],
) -> Result<String, (usize, String)> {
    let mut text = String::from("# A recorded conversation.\n");
    put(&mut text, words.iter().map(|words| format!("! {words}")));
    let mut player = Player::new(policy);
    let mut lines = recorded.lines.iter().peekable();
    while let Some((number, line)) = lines.next() {
        let wrong = |expected| (*number, expected);
        let kept = ["left", "gone"].contains(&line.text.split(' ').next().unwrap_or_default());
        match line.sign {
            b'+' => {
                player.pass_exactly(line.text).map_err(wrong)?;
                let _ = writeln!(text, "{}", said(line));
            }
            b'>' => {
                player.input(line).map_err(wrong)?;
                let pair =
                    lines.next_if(|(_, next)| next.sign == b'!' && next.text.starts_with("on "));
                match pair {
                    Some((number, pair)) => {
                        player.input(pair).map_err(|expected| (*number, expected))?;
                        let stream = pair.text.trim_start_matches("on ");
                        let _ = writeln!(text, ">@{stream} {}", line.text);
                    }
                    None => drop(writeln!(text, "{}", said(line))),
                }
                player.drain();
            }
            b'<' | b'2' | b'!' if line.sign != b'!' || kept => {
                player.input(line).map_err(wrong)?;
                player.drain();
                let _ = writeln!(text, "{}", said(line));
            }
            _ => {}
        }
        put(&mut text, in_order(player.take(), line.sign == b'>'));
    }
    Ok(text)
}

/// In the order of tests: what the server gets of what a client says, what clients are told, what else the
/// server gets, what was decided; the same at each time at which something comes out.
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
