//! The functions that are fuzzed. They accept any bytes, and panic if a rule is broken.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use milepost_core::progress::ProgressValue;
use milepost_core::progress::durations::{Durations, Sample};
use milepost_core::progress::extract::Extract;
use milepost_core::progress::policy::masks::{MASK, Masks};
use milepost_core::progress::{Coalesce, Filter, Fragment, Mode, OnFall, Pacing, Policy, Transmit};
use milepost_core::protocol::json;
use milepost_core::protocol::jsonrpc::{Key, Kind, Message};
use milepost_core::protocol::lines::{LineFrame, Lines};
use milepost_core::protocol::mcp::PROGRESS;
use milepost_core::protocol::terminal::{LINE_MAX, Terminal};

use crate::codec::cut_input::{Cut, cut};
use crate::codec::sse_rig;
use crate::core::dialects::dialects;
use crate::core::rig::{Rig, assert_one_verdict_each, assert_pieces_stand_together};

/// Plays a conversation. Each line is one step, which begins with a sign as in the wire transcripts:
///
/// ```text
/// ! letters     settings, before the first step (see [`policy`])
/// > text        the client says            < text   the server says
/// ( text        the server begins a message too long to be held
/// * text        more of it                 )        it is over
/// + 150ms       time passes                | and ~  the client stops reading, and reads again
/// x and X       the client's stream closes; in giving up its calls     g   the server is gone
/// ```
/// Any other line is ignored. Checks that no step panics, each message gets one verdict, and progress values rise.
pub(crate) fn core(data: &[u8]) {
    let mut lines = data.split(|&byte| byte == b'\n').peekable();
    let settings = lines.next_if(|line| line.first() == Some(&b'!')).unwrap_or_default();
    let mut rig = Rig::new(policy(settings));
    rig.gathered = settings.contains(&b'g');
    let observed = settings.contains(&b'o');
    let mut figures = Figures { observed, ..Figures::default() };
    let (mut passing, mut gone) = (false, false);
    let (mut told, mut heard) = (Vec::new(), 0);
    for line in lines {
        let Some((sign, text)) = line.split_first() else { continue };
        let text = text.strip_prefix(b" ").unwrap_or(text);
        match sign {
            b'>' => {
                figures.client_says(text, rig.filter.calls().streams().is_drained());
                rig.client(text);
            }
            // The server has one connection, so everything that it writes within a long message is part of that
            // message.
            b'<' | b'(' | b'*' if passing && !gone => rig.piece(text),
            b'<' if !gone => rig.server(text),
            b'(' if !gone => {
                rig.begin(text);
                passing = true;
            }
            b')' if passing && !gone => {
                rig.over();
                passing = false;
            }
            b'+' => rig.pass(time(text)),
            b'|' => rig.stalled = true,
            b'~' => rig.resume(),
            b'x' => rig.close(Filter::close_stream),
            b'X' => rig.close(Filter::cancel_stream),
            b'g' => {
                rig.gone();
                gone = true;
            }
            _ => {}
        }
        told.append(&mut rig.told);
        figures.client_is_told(&told[heard..]);
        heard = told.len();
    }
    rig.resume();
    rig.pass(Duration::from_secs(10));
    figures.client_is_told(&rig.told);
    told.append(&mut rig.told);
    // If the server has ended in the middle of a message, the message stays incomplete.
    if !gone {
        assert_pieces_stand_together(&told);
    }
    rig.gone();
    assert_one_verdict_each(&rig);
}

/// Returns the policy for these letters: `o`bserve, `e`nforce; `i`mmediate pacing; a fall `d`rops or `r`ebases; `a`ll
/// dialects; `k`eep the original; `t`hin all; `m`ap ids for a shared server; `c`all timeout; e`s`timate.
fn policy(settings: &[u8]) -> Policy {
    let on = |letter: u8| settings.contains(&letter);
    let mut policy = Policy { keep_original: on(b'k'), id_mapping: on(b'm'), ..Policy::default() };
    if on(b'o') {
        policy.call.mode = Mode::Observe;
    } else if on(b'e') {
        policy.call.mode = Mode::Enforce;
    }
    if on(b'i') {
        policy.call.pacing = Pacing::IMMEDIATE;
    }
    if on(b'd') {
        policy.call.on_fall = OnFall::Drop;
    } else if on(b'r') {
        policy.call.on_fall = OnFall::Rebase;
    }
    if on(b'a') {
        policy.call.dialects = dialects();
    }
    if on(b't') {
        policy.call.coalesce = Coalesce::All;
    }
    policy.call.call_timeout = on(b'c').then_some(Duration::from_secs(4));
    if on(b's') {
        policy.call.estimate = true;
        let samples = [1000, 3000].map(|millis| Sample { millis, has_figure: false });
        policy.learned.remember("scan", &Durations::new(samples, 0, 0));
    }
    policy
}

/// Reads a time such as `30s` or `150ms`, of at most 100 s.
fn time(text: &[u8]) -> Duration {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).take(6);
    let value = digits.fold(0_u64, |value, byte| value * 10 + u64::from(byte - b'0'));
    let millis = if text.ends_with(b"ms") { value } else { value * 1000 };
    Duration::from_millis(millis.min(100_000))
}

/// The last progress value of each token, in the client's spelling of the token.
#[derive(Default)]
struct Figures {
    told: BTreeMap<Bytes, Option<f64>>,
    /// Tokens that were reused while they were in use, or before the client had read the answer.
    blurred: Vec<Key>,
    observed: bool,
}

impl Figures {
    fn client_says(&mut self, text: &[u8], all_told: bool) {
        let message = Message::parse(Bytes::copy_from_slice(text));
        if message.kind() == Kind::Batch {
            message.elements().for_each(|each| self.client_says(each.raw(), all_told));
        }
        let meta = message.params().and_then(|params| json::member(&params, "_meta"));
        let Some(token) = meta.and_then(|meta| json::member(&meta, "progressToken")) else {
            return;
        };
        let Some(key) = Key::read(&token) else { return };
        let is_known = self.told.keys().any(|known| Key::read(known).as_ref() == Some(&key));
        if is_known && !all_told {
            self.blurred.push(key.clone());
        }
        // The client may have used another spelling of the token before.
        self.told.retain(|own, _| Key::read(own).as_ref() != Some(&key));
        self.told.insert(token, None);
    }

    fn client_is_told(&mut self, told: &[Transmit]) {
        let whole =
            told.iter().filter(|transmit| transmit.part == Fragment::Whole && !self.observed);
        for text in whole.map(|transmit| transmit.payload.to_bytes()) {
            let message = Message::parse(text.clone());
            if message.kind() != Kind::Notification || message.method().as_deref() != Some(PROGRESS)
            {
                continue;
            }
            let params = message.params().unwrap_or_default();
            let token = json::member(&params, "progressToken").unwrap_or_default();
            let figure = json::member(&params, "progress").and_then(|text| json::number(&text));
            let (Some(key), Some(figure)) = (Key::read(&token), figure) else {
                panic!("no token or figure in {text:?}")
            };
            // The server may spell a string in another way.
            let mut names = self.told.iter_mut();
            let Some((_, last)) = names.find(|(own, _)| Key::read(own).as_ref() == Some(&key))
            else {
                panic!("no such token: {text:?}")
            };
            let rises = last.is_none_or(|last| figure > last);
            assert!(rises || self.blurred.contains(&key), "{last:?} before {text:?}");
            *last = Some(figure);
        }
    }
}

/// Reads a stream of events, divided as [`cut`] says. Checks that every byte is returned however the stream is divided,
/// and that the blocks have the fields that a second reader finds in them, also after they are changed.
pub(crate) fn sse(data: &[u8]) {
    let Some(Cut { limit, input, pieces }) = cut(data) else { return };
    sse_rig::agree(limit, &sse_rig::play(limit, [input]), input);
    sse_rig::agree(limit, &sse_rig::play(limit, pieces), input);
}

/// Reads a stream of lines, divided as [`cut`] says. Checks that the frames are the same however the stream is divided,
/// and that only blank lines and the byte order mark are lost.
pub(crate) fn lines(data: &[u8]) {
    let Some(Cut { limit, input, pieces }) = cut(data) else { return };
    let (one, other) = (frames(limit, &[input]), frames(limit, &pieces));
    assert_eq!(one, other);
    let solid = |bytes: &[u8]| bytes.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
    let kept: usize = one.iter().map(|frame| solid(bytes_of(frame))).sum();
    let mark = usize::from(input.starts_with(b"\xEF\xBB\xBF")) * 3;
    assert_eq!(kept, solid(input) - mark);
}

/// Reads the output of a program, divided as [`cut`] says. Checks that the lines of the undivided output are shown
/// however it is divided, and that all lines are short and have no control characters.
pub(crate) fn terminal(data: &[u8]) {
    let Some(Cut { input, pieces, .. }) = cut(data) else { return };
    let (whole, cut) = (shown(&[input]), shown(&pieces));
    let mut all = cut.iter();
    assert!(whole.iter().all(|line| all.any(|other| other == line)), "{whole:?} {cut:?}");
    for line in cut {
        assert!(!line.trim().is_empty() && line.len() <= LINE_MAX, "{line:?}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}

fn shown(pieces: &[&[u8]]) -> Vec<String> {
    let (mut terminal, mut lines) = (Terminal::default(), Vec::new());
    for piece in pieces {
        terminal.feed(piece, &mut |line| lines.push(line.to_owned()));
    }
    terminal.flush(&mut |line| lines.push(line.to_owned()));
    lines
}

/// Reads a line of text. Checks that a value found in it does not exceed its total and is a JSON number, and that
/// masked text contains the mask.
pub(crate) fn text(data: &[u8]) {
    let line = String::from_utf8_lossy(data);
    let own = Extract::read(["{progress}/{total}", "{percent}%", "x(?<progress>.*)"]);
    for extract in [Extract::presets(), own.unwrap_or_default()] {
        let Some(ProgressValue { value, total }) = extract.figure(&line) else { continue };
        assert!(value.value >= 0.0 && total.as_ref().is_none_or(|all| value.value <= all.value));
        for number in total.iter().chain([&value]) {
            assert_eq!(json::number(&number.text), Some(number.value));
        }
    }
    let masked = Masks::default().mask(&line);
    assert!(masked == line || masked.contains(MASK));
}

/// Returns the frames of these pieces, with neighbouring chunks joined.
fn frames(limit: usize, pieces: &[&[u8]]) -> Vec<LineFrame> {
    let (mut lines, mut input, mut frames) = (Lines::new(limit), BytesMut::new(), Vec::new());
    let mut push = |frame: LineFrame| match (frames.last_mut(), frame) {
        (Some(LineFrame::Chunk(last)), LineFrame::Chunk(more)) => {
            *last = Bytes::from([&last[..], &more[..]].concat());
        }
        (_, frame) => frames.push(frame),
    };
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(frame) = lines.decode(&mut input) {
            push(frame);
        }
    }
    while let Some(frame) = lines.finish(&mut input) {
        push(frame);
    }
    frames
}

fn bytes_of(frame: &LineFrame) -> &[u8] {
    match frame {
        LineFrame::Line(bytes)
        | LineFrame::Start(bytes)
        | LineFrame::Chunk(bytes)
        | LineFrame::Rest(bytes) => bytes,
        LineFrame::End { .. } => b"",
    }
}
