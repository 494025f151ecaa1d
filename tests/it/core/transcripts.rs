//! Wire transcripts, played on the bare filter with virtual time.
//!
//! ```text
//! # a remark
//! ! hold=0ms guard=0ms first-after=0ms     settings, as `wrap` has them
//! ! dialect { name = "acme", ... }         one more dialect, as route files have them
//! ! ask { ... }                            what is put into requests, as route files have it
//! > {...}      the client says            >2 on client stream 2
//!                                         >2@70 and the server speaks of it on its stream 70
//! ^ {...}      the server gets something else than what the client said, or something besides
//! < {...}      the server says            <2 on the upstream stream that pairs with client stream 2,
//!                                         <70 on its stream 70
//! 2 text       the server writes a line on its standard error (`\x0D` and such for what is no text)
//! = {...}      the client is told         =2 on client stream 2
//! x reason     a message of the server was withheld
//! e text       a line that is no message went to standard error
//! ~ summary    a call has ended; `~ late EVENT`: its work goes on (`late`); `~ task EVENT`: of `tasks`
//! + 30s        time passes
//! ! hears {...}                            the server logs this on the stream of another filter
//! ! cancels 1 local TEXT                   an operator cancels the call of this number in the filter
//! ```
//! The lines `^ = x e ~` are what comes out; `UPDATE_EXPECT=1` writes them anew. A transcript tells
//! of calls ending only with `! summaries`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use milepost::config::routes::{Environment, Routes};
use milepost::observe::metrics::RouteCounts;
use milepost::observe::transcript;
use milepost::progress::dialect::TextSource;
use milepost::progress::durations::LearnedDurations;
use milepost::progress::extract::Extract;
use milepost::progress::input::Input;
use milepost::progress::{
    Disposition, Filter, FilterEvent, NameKey, Origin, Pacing, Policy, Reason, Repairs,
    SpooledAnswer, StreamId, StreamKind, StreamPacing, Verdict,
};
use milepost::protocol::jsonrpc::{Key, Message};
use milepost::protocol::terminal::Terminal;

use crate::core::checker::Checker;
use crate::core::rig::from_file;
use crate::support::sections::{Section, rewrite, section_files, sections};

/// A filter, its clients and a clock that stands still unless told otherwise.
pub(crate) struct Player {
    filter: Filter,
    terminal: Terminal,
    learned: Arc<LearnedDurations>,
    start: Instant,
    now: Duration,
    checkers: BTreeMap<u64, Checker>,
    summaries: bool,
    /// Where its records are counted.
    counts: Option<Arc<RouteCounts>>,
    checked: bool,
    out: String,
}

const WIRE: StreamId = StreamId(0);

impl Player {
    /// One client on stdio.
    pub(crate) fn new(policy: Policy) -> Self {
        let checked =
            policy.everywhere().all(|call| !call.observes() && call.answers.orphan_answer);
        let learned = Arc::clone(&policy.learned);
        let has_tasks = policy.has_tasks();
        let mut filter = Filter::new(policy);
        filter.open_stream(WIRE, StreamKind::Shared, StreamPacing::ByCall);
        let start = Instant::now();
        if has_tasks {
            let key = NameKey::new([7; 16]);
            filter.handle(start, &Input::EnableTasks(key, 1_764_073_496_000));
        }
        let checkers = BTreeMap::from([(0, Checker::default())]);
        Self {
            filter,
            terminal: Terminal::default(),
            learned,
            start,
            now: Duration::ZERO,
            checkers,
            summaries: false,
            counts: None,
            checked,
            out: String::new(),
        }
    }

    fn now(&self) -> Instant {
        self.start + self.now
    }

    /// Returns the output since the last call of this function.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// One line of input.
    #[track_caller]
    pub(crate) fn play(&mut self, line: &str) {
        let (sign, rest) = line.split_at(1);
        let (stream, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let (stream, paired) = stream.split_once('@').unwrap_or((stream, ""));
        let stream = StreamId(stream.parse().unwrap_or(0));
        let message = || Message::parse(Bytes::from(unprintable(text)));
        match sign {
            ">" => {
                self.client_says(stream, &message(), text);
                if let Ok(upstream) = paired.parse() {
                    self.filter.intake_mut().pair(stream, &message(), StreamId(upstream));
                }
            }
            "<" => {
                let origin =
                    if rest.starts_with(' ') { Origin::Shared } else { Origin::Stream(stream) };
                let fate = self.filter.server_message(self.now(), origin, &message());
                if let Disposition::NotAMessage(bytes) = fate {
                    let _ = writeln!(self.out, "e {}", String::from_utf8_lossy(&bytes).trim_end());
                }
            }
            "2" => {
                let text = [&unprintable(text)[..], b"\n"].concat();
                let (filter, now) = (&mut self.filter, self.start + self.now);
                let overheard =
                    &mut |line: &str| filter.intake_mut().text_line(now, TextSource::Stderr, line);
                self.terminal.feed(&text, overheard);
            }
            "+" => return self.pass(duration(text.trim())),
            "!" => self.command(text),
            _ => panic!("what is {line:?}?"),
        }
        self.drain();
    }

    fn client_says(&mut self, stream: StreamId, message: &Message, text: &str) {
        self.checkers.entry(stream.0).or_default().client_said(text);
        let payload = self.filter.client_message(self.now(), stream, message);
        let sent = payload.to_bytes();
        if sent != *message.raw() {
            let sent = String::from_utf8_lossy(&sent);
            let _ = writeln!(self.out, "^ {}", if sent.is_empty() { "nothing" } else { &*sent });
        }
    }

    fn command(&mut self, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let id = || StreamId(words[1].parse().unwrap());
        match words[0] {
            "open" => {
                let shared = words.get(2) == Some(&"shared");
                let kind = if shared { StreamKind::Shared } else { StreamKind::Exchange };
                self.filter.open_stream(id(), kind, StreamPacing::Immediate);
            }
            "elsewhere" => {
                let tokens = words[1..]
                    .iter()
                    .map(|word| Key::read(&Bytes::copy_from_slice(word.as_bytes())).unwrap());
                let tokens = Input::MarkElsewhere(tokens.collect());
                self.filter.handle(self.now(), &tokens);
            }
            "ends" => {
                self.filter.handle(self.now(), &Input::EndResponse(id()));
            }
            "principal" => {
                let principal = Input::SetPrincipal(id(), words[2].parse().unwrap());
                self.filter.handle(self.now(), &principal);
            }
            "close" if words.get(2) == Some(&"cancels") => {
                self.filter.cancel_stream(self.now(), id());
            }
            "close" => self.filter.close_stream(self.now(), id()),
            "gone" => self.filter.server_gone(self.now(), &words[1..].join(" "), None),
            "left" => self.filter.close_clients(self.now()),
            "hears" => {
                let message = Message::parse(Bytes::from(words[1..].join(" ")));
                self.filter.handle(self.now(), &Input::HearLog(Origin::Shared, message));
            }
            "apart" => {
                let key = Key::read(&Bytes::copy_from_slice(words[1].as_bytes())).unwrap();
                let input = Input::SpoolAnswer(key.clone(), Repairs::default());
                let place = self.filter.handle(self.now(), &input).apart();
                self.drain();
                // The shell writes the answer after the messages that the stream has now.
                if let Some(SpooledAnswer { stream, mut repairs, .. }) = place {
                    let text = format!(
                        r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":"large"}}}}"#,
                        String::from_utf8_lossy(&key.to_json())
                    );
                    let text = from_file(&mut repairs, &text, usize::MAX);
                    self.checkers.entry(stream.0).or_default().client_told(&text);
                    let _ = writeln!(self.out, "={} {text}", stream.0);
                }
            }
            "cancels" => drop(self.filter.handle(self.now(), &text.parse().unwrap())),
            "summaries" => self.summaries = true,
            other => panic!("what is {other:?}?"),
        }
    }

    /// Lets time pass, and stops at each time for which the filter has asked.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let begin = self.now;
        while let Some(at) = self.filter.poll_timeout().map(|at| at - self.start)
            && at <= end
        {
            self.now = self.now.max(at);
            let before = self.out.len();
            self.drain();
            if self.out.len() > before && self.now > begin {
                let said = self.out.split_off(before);
                let _ = write!(self.out, "@ {:?}\n{said}", self.now - begin);
            }
        }
        self.now = end;
        self.drain();
    }

    fn drain(&mut self) {
        let streams: Vec<u64> = self.checkers.keys().copied().collect();
        for stream in streams {
            let number = if stream == 0 { String::new() } else { stream.to_string() };
            while let Some(transmit) = self.filter.poll_transmit(self.now(), StreamId(stream)) {
                let text = String::from_utf8_lossy(&transmit.payload.to_bytes()).into_owned();
                if self.checked {
                    self.checkers.entry(stream).or_default().client_told(&text);
                }
                let _ = writeln!(self.out, "={number} {}", text.trim_end());
                self.filter.written(self.now(), StreamId(stream));
            }
        }
        while let Some(payload) = self.filter.poll_to_server() {
            let _ = writeln!(self.out, "^ {}", String::from_utf8_lossy(&payload.to_bytes()));
        }
        while let Some(released) = self.filter.poll_released() {
            let sent = released.payload.to_bytes();
            let _ = writeln!(self.out, "^ {}", String::from_utf8_lossy(&sent));
        }
        while let Some(record) = self.filter.poll_event() {
            if let FilterEvent::Call(call) = &record {
                self.learned.learn(call);
            }
            if let Some(counts) = &self.counts {
                counts.note(&record);
            }
            match record {
                FilterEvent::Message { verdict: Verdict::Withheld(Reason::Noise), .. } => {}
                FilterEvent::Message { verdict: Verdict::Withheld(reason), .. } => {
                    let _ = writeln!(self.out, "x {}", reason.name());
                }
                FilterEvent::Call(call) if self.summaries => {
                    let _ = writeln!(self.out, "~ {}", transcript::summary(&call));
                }
                FilterEvent::Task(news) => {
                    let _ = writeln!(self.out, "~ task {}", news.event.name());
                }
                FilterEvent::Late(news) => {
                    let _ =
                        writeln!(self.out, "~ late {}, call {}", news.event.name(), news.attempts);
                }
                _ => {}
            }
        }
    }
}

/// `\xFF`-like escapes for bytes that a text file cannot hold, and `\n` at the end of each line.
pub(crate) fn unprintable(text: &str) -> Vec<u8> {
    transcript::unescape(text).unwrap().into_owned()
}

/// `30s`, `150ms`, `2m`, `1h`.
pub(crate) fn duration(text: &str) -> Duration {
    milepost::config::values::time(text).unwrap()
}

/// The settings of a `!` line before the first message.
pub(crate) fn settings(policy: &mut Policy, text: &str) {
    if let Some(table) = text.strip_prefix("dialect ") {
        let text = format!("dialect = [{table}]");
        let routes = Routes::parse(Path::new(""), &text, &Environment::default());
        policy.call.dialects.extend_from_slice(routes.unwrap().dialects());
        return;
    }
    if let Some(table) = text.strip_prefix("ask ") {
        let text = format!("[[route]]\npath = \"/r\"\nupstream.demo = true\nask = {table}");
        let routes = Routes::parse(Path::new(""), &text, &Environment::default());
        return routes.unwrap().find(None).unwrap().apply(policy);
    }
    for setting in text.split_whitespace() {
        match setting.split_once('=') {
            None => {}
            // Words of transcripts that mean several settings, or that no recording has.
            Some(("pacing", "immediate")) => policy.call.pacing = Pacing::IMMEDIATE,
            Some(("shared", "on")) => policy.id_mapping = true,
            Some(("extract", "off")) => policy.call.extract = Extract::none(),
            Some(("extract", value)) => policy.call.extract = Extract::read([value]).unwrap(),
            Some(_) => transcript::settings::read(policy, setting).unwrap(),
        }
    }
}

/// Plays a transcript: the result is the text that the transcript should have.
pub(crate) fn replay(text: &str) -> String {
    replay_with(text, |_| {})
}

/// The same, with a summary of each call, and with its records counted.
pub(crate) fn replay_counting(text: &str, counts: &Arc<RouteCounts>) -> String {
    replay_with(text, |player| {
        player.summaries = true;
        player.counts = Some(Arc::clone(counts));
    })
}

fn replay_with(text: &str, prepare: impl Fn(&mut Player)) -> String {
    let mut policy = Policy::default();
    let mut lines = text.lines().peekable();
    let mut out = String::new();
    while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with(['#', '!'])) {
        if let Some(text) = line.strip_prefix("! ").filter(|text| text.contains('=')) {
            settings(&mut policy, text);
        } else if line.starts_with('!') {
            let mut player = Player::new(policy);
            prepare(&mut player);
            return out + &rest(&mut player, std::iter::once(line).chain(lines));
        }
        let _ = writeln!(out, "{line}");
    }
    let mut player = Player::new(policy);
    prepare(&mut player);
    out + &rest(&mut player, lines)
}

fn rest<'a>(player: &mut Player, lines: impl Iterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for line in lines {
        match line.chars().next() {
            None | Some('#') => drop(writeln!(out, "{line}")),
            Some('^' | '=' | 'x' | 'e' | '~' | '@') => {}
            _ => {
                player.play(line);
                let _ = write!(out, "{line}\n{}", player.take());
            }
        }
    }
    out
}

/// Every transcript of `tests/data/golden`.
pub(crate) fn transcripts() -> Vec<Section> {
    section_files("tests/data/golden").iter().flat_map(|file| sections(file)).collect()
}

/// Returns the transcripts in which each client stream has the server's stream to itself.
pub(crate) fn transcripts_of_one_client() -> impl Iterator<Item = Section> {
    transcripts().into_iter().filter(|transcript| !transcript.key().starts_with("wire/"))
}

#[test]
fn transcripts_come_out_as_they_are_written() {
    let mut wrong = Vec::new();
    for transcript in transcripts() {
        let text = &transcript.text;
        let played = std::panic::catch_unwind(|| replay(text));
        let played = played.unwrap_or_else(|_| panic!("in {transcript}"));
        if played == *text {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            rewrite(&transcript.file, &transcript.name, &played);
            continue;
        }
        let at = text.lines().zip(played.lines()).position(|(a, b)| a != b);
        let line = at.unwrap_or_else(|| text.lines().count().min(played.lines().count()));
        wrong.push(format!(
            "{}:{}: {}\n  wrong:    {}\n  expected: {}",
            transcript.file,
            transcript.line + 1 + line,
            transcript.name,
            played.lines().nth(line).unwrap_or("(end)"),
            text.lines().nth(line).unwrap_or("(end)"),
        ));
    }
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 writes them anew\n{}", wrong.join("\n"));
}
