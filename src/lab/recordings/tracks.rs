//! The filters of a recording while it is played.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use litemap::LiteMap;

use super::Recorded;
use super::player::{PlayedLine, Player, PolicySource};
use crate::observe::transcript::{LineStream, TranscriptLine};
use crate::progress::input::Input;
use crate::progress::{Policy, StreamId};
use crate::relay::SOLE_STREAM;

/// An input and the output that followed it.
pub(in crate::lab) struct ReplayStep {
    /// The number of the filter in the file.
    pub(in crate::lab) part: u64,
    /// The time of the input, counted from the start of the recording.
    pub(in crate::lab) at: Duration,
    /// The line with the input.
    pub(in crate::lab) line: String,
    /// The numbers of the server's messages in the input.
    pub(in crate::lab) numbers: Range<u64>,
    /// The lines of the output.
    pub(in crate::lab) out: Vec<PlayedLine>,
}

/// One filter of the conversation.
pub(in crate::lab) struct Track {
    /// The filter.
    pub(in crate::lab) player: Player,
    /// The recorded output, each line with its number.
    pub(in crate::lab) expected: Vec<(usize, String)>,
    /// The output of the new filter.
    pub(in crate::lab) actual: Vec<String>,
    /// The index of the last step.
    step: Option<usize>,
    /// Whether the recording of this filter is complete.
    pub(in crate::lab) ends: bool,
}

/// The filters of a conversation, by their numbers in the file.
pub(in crate::lab) type Tracks = LiteMap<u64, Track>;

impl Track {
    /// Adds new output to the last step, or to a new step.
    fn take(&mut self, steps: &mut Vec<ReplayStep>, step: Option<ReplayStep>) {
        let out = self.player.take();
        self.actual.extend(out.iter().map(|line| line.text.clone()));
        if let Some(step) = step {
            self.step = Some(steps.len());
            steps.push(step);
        }
        if let Some(step) = self.step.and_then(|at| steps.get_mut(at)) {
            step.out.extend(out);
        }
    }
}

/// Returns a line in the form of a recording, without the number of its filter.
pub(in crate::lab) fn line_text(line: &TranscriptLine<'_>) -> String {
    let at = match line.at {
        LineStream::Only => String::new(),
        LineStream::Nowhere => "-".to_owned(),
        LineStream::Stream(stream) => stream.to_string(),
        LineStream::Client(stream) => format!("@{stream}"),
    };
    format!("{}{at} {}", char::from(line.sign), line.text)
}

/// Returns the input in a line that has no message.
pub(in crate::lab) fn input_of(line: &TranscriptLine<'_>) -> Option<Input> {
    (line.sign == b'!').then(|| Input::read(line.text, None).ok()).flatten()
}

/// Returns for each line the streams that a later line marks as written. A stream without such a line was written
/// immediately.
fn written_later(lines: &[(usize, TranscriptLine<'_>)]) -> Vec<BTreeSet<StreamId>> {
    let mut named: LiteMap<u64, BTreeSet<StreamId>> = LiteMap::new();
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

/// Returns the filter of a line, and whether the filter begins with this line.
fn track<'a>(
    tracks: &'a mut Tracks,
    line: &TranscriptLine<'_>,
    start: Instant,
    (policy, source): (&Arc<Policy>, PolicySource),
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
        player.policy_source = source;
        Track { player, expected: Vec::new(), actual: Vec::new(), step: None, ends: false }
    });
    Ok((track, begins.is_some()))
}

/// Plays a recording with these settings. After each line `see` gets the line, the filter and the numbers of the
/// server's messages in the line.
///
/// # Errors
/// The line that cannot be played, and what is expected instead.
pub(in crate::lab) fn play(
    recorded: &Recorded<'_>,
    (policy, source): (&Arc<Policy>, PolicySource),
    mut see: impl FnMut(usize, &TranscriptLine<'_>, &mut Player, Range<u64>),
) -> Result<(Tracks, Vec<ReplayStep>), (usize, String)> {
    let start = Instant::now();
    let mut tracks = Tracks::new();
    let mut steps: Vec<ReplayStep> = Vec::new();
    let later = written_later(&recorded.lines);
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
        let (track, begins) = track(&mut tracks, line, start, (policy, source)).map_err(wrong)?;
        let is_out = b"=x~^e".contains(&line.sign);
        let player = &mut track.player;
        if !is_out {
            player.written(later);
        }
        let mut numbers = 0..0;
        match line.sign {
            b'=' => player.write_recorded(line.at),
            // The recording has a decision here, but no message for it: write the message that caused the decision.
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
        see(*number, line, player, numbers.clone());
        let (part, at) = (line.part, player.time());
        if is_out {
            track.expected.push((*number, line_text(line)));
        }
        let step = match track.step {
            Some(_) if is_out => None,
            None if is_out => {
                let line = "# before anything was said".to_owned();
                Some(ReplayStep { part, at, line, numbers, out: Vec::new() })
            }
            _ => Some(ReplayStep { part, at, line: line_text(line), numbers, out: Vec::new() }),
        };
        track.take(&mut steps, step);
        tracks.extend(from.map(|(number, _, track)| (number, track)));
    }
    Ok((tracks, steps))
}
