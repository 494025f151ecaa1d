//! The transcripts of the bare filter, played through HTTP: the same messages at the same times.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use milepost::progress::Reason;

use crate::core::transcripts::{duration, transcripts_of_one_client, unprintable};
use crate::http::rig::{Answer, Asked, Rig, check, pass, settle};
use crate::observe::metrics::page::Page;

/// Transcripts that have no meaning over HTTP+SSE, and the reason: a single transcript of a file, or all of a file
/// (`late/`).
const NOT_ON_A_WIRE: [(&str, &str); 10] = [
    ("late/", "no call joins another where client and server speak the same transport"),
    ("tasks/", "no call is a task where client and server speak the same transport"),
    ("ask/shared", "a wire has one client"),
    ("edge-cases/clients-of-one-child", "a wire has one client"),
    ("rules/shared-child", "a wire has one client"),
    ("text/noise", "a server over HTTP has no standard output"),
    ("rules/questions-and-time-out", "what Milepost posts itself comes between the client's posts"),
    (
        "rules/cancelled-by-operator",
        "the table of calls, in which operators find a call, is not in this scene",
    ),
    ("rules/client-leaves", "only a client on stdio can say that it says no more"),
    (
        "rules/text-before-the-answer",
        "what stands before a message on a line is no matter of events",
    ),
];

/// Whether `skip` of [`NOT_ON_A_WIRE`] means the transcript `name`.
fn is_named(name: &str, skip: &str) -> bool {
    name == skip || skip.ends_with('/') && name.starts_with(skip)
}

/// A proxy with the settings of a transcript.
fn rig(text: &str) -> Rig {
    let mut dialects = vec!["defaults"];
    let mut own = Vec::new();
    for table in text.lines().filter_map(|line| line.strip_prefix("! dialect ")) {
        let name = table.split('"').nth(1).unwrap();
        dialects.push(name);
        own.push(table);
    }
    if own.is_empty() {
        return Rig::new(&keys(text));
    }
    let top = format!("dialect = [{}]", own.join(","));
    Rig::with(&top, &format!("{}dialects = {dialects:?}", keys(text)))
}

/// The settings of a transcript as keys of a route.
fn keys(text: &str) -> String {
    let mut keys = String::new();
    let mut heartbeat = Vec::new();
    let mut no_repair = Vec::new();
    let settings = text.lines().filter_map(|line| line.strip_prefix("! "));
    for line in settings.filter(|line| !line.starts_with("dialect ")) {
        if let Some(table) = line.strip_prefix("ask ") {
            writeln!(keys, "ask = {table}").unwrap();
            continue;
        }
        for setting in line.split_whitespace() {
            let Some((key, value)) = setting.split_once('=') else { continue };
            let name = key.replace('-', "_");
            match (key, value) {
                ("heartbeat", value) => heartbeat.push(format!("enabled = {}", value == "on")),
                ("heartbeat-after" | "heartbeat-every" | "heartbeat-max", value) => {
                    heartbeat
                        .push(format!("{} = \"{value}\"", key.trim_start_matches("heartbeat-")));
                }
                ("keep-original" | "words-in-2024" | "estimate", value) => {
                    writeln!(keys, "{name} = {}", value == "on").unwrap();
                }
                ("dialects", names) => {
                    let names: Vec<_> = names.split(',').collect();
                    writeln!(keys, "dialects = {names:?}").unwrap();
                }
                (
                    "response-id" | "error-shape" | "bare-result" | "orphan-answer" | "missing-id"
                    | "envelope" | "ping" | "unicode" | "split-line" | "total",
                    "off",
                ) => no_repair.push(key),
                ("extract", "off") => keys += "extract = []\n",
                ("extract", value) => writeln!(keys, "extract = [{value:?}]").unwrap(),
                ("token-is", _) => keys += "token_is = \"request_id\"\n",
                ("messages", _) => keys += "messages = \"append\"\n",
                ("coalesce", _) => keys += "coalesce = \"all\"\n",
                (_, value) => writeln!(keys, "{name} = {value:?}").unwrap(),
            }
        }
    }
    if !no_repair.is_empty() {
        writeln!(keys, "no_repair = {no_repair:?}").unwrap();
    }
    if !heartbeat.is_empty() {
        writeln!(keys, "heartbeat = {{ {} }}", heartbeat.join(", ")).unwrap();
    }
    keys
}

/// Returns what each stream gets, and when, according to the transcript. Lines on standard error are left out.
fn expected(text: &str) -> BTreeMap<u64, Vec<(Duration, String)>> {
    let mut told: BTreeMap<u64, Vec<(Duration, String)>> = BTreeMap::new();
    let (mut begin, mut end, mut at) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for line in text.lines() {
        let (sign, rest) = line.split_at(line.len().min(1));
        match sign {
            "+" => {
                begin = end;
                at = begin;
                end += duration(rest.trim());
            }
            "@" => at = begin + duration(rest.trim()),
            "=" => {
                let (stream, text) = rest.split_once(' ').unwrap();
                let stream = stream.parse().unwrap_or(0);
                told.entry(stream).or_default().push((at, text.trim_end().to_owned()));
            }
            // In events, text that is not a message becomes a comment.
            "#" | "" | "x" | "^" | "~" | "e" => {}
            _ => at = end,
        }
    }
    told
}

fn told(answer: &Answer, since: Duration) -> Vec<(Duration, String)> {
    let told = answer.told().into_iter();
    told.map(|told| (told.at - since, told.text.trim_end().to_owned())).collect()
}

/// How often each reason stands in a transcript.
fn withheld(text: &str) -> BTreeMap<String, u32> {
    let mut reasons = BTreeMap::new();
    for reason in text.lines().filter_map(|line| line.strip_prefix("x ")) {
        *reasons.entry(reason.to_owned()).or_default() += 1;
    }
    reasons
}

/// The same, as operators get it.
fn counted(rig: &Rig) -> BTreeMap<String, u32> {
    let page = Page::read(&rig.metrics());
    let count = |reason: &str| page.sum("milepost_withheld_total", &[("reason", reason)]) as u32;
    let reasons = Reason::ALL.map(Reason::name).into_iter().filter(|name| *name != "noise");
    let counts = reasons.map(|reason| (reason.to_owned(), count(reason)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// One client on HTTP+SSE.
pub(crate) struct Wire {
    pub(crate) rig: Rig,
    /// The messages that the client reads.
    pub(crate) stream: Answer,
    /// Where the server writes.
    pub(crate) server: Asked,
    /// Where the client posts.
    pub(crate) path: String,
    /// The messages that the client has posted.
    pub(crate) posted: Vec<Answer>,
}

impl Wire {
    pub(crate) async fn open(mut rig: Rig) -> Self {
        let stream = rig.send("GET /r/sse", &["Accept: text/event-stream"], b"");
        let server = rig.asked().await;
        assert_eq!(server.what(), "GET /base/sse");
        server.events(&[]);
        server.chunk("event: endpoint\ndata: /base/messages?session_id=1\n\n");
        settle().await;
        let blocks = stream.blocks();
        assert_eq!(blocks.len(), 1);
        assert_eq!(blocks[0].name.as_deref(), Some("endpoint"));
        let path = String::from_utf8(blocks[0].data.clone().unwrap()).unwrap();
        Self { rig, stream, server, path, posted: Vec::new() }
    }

    /// The client posts; the server gets the same bytes and accepts them.
    pub(crate) async fn post(&mut self, message: &[u8]) {
        self.post_as(message, message).await;
    }

    /// The client posts; the server gets `wanted` and accepts it.
    pub(crate) async fn post_as(&mut self, message: &[u8], wanted: &[u8]) {
        let what = format!("POST {}", self.path);
        let answer = self.rig.send(&what, &["Content-Type: application/json"], message);
        self.gets(wanted).await;
        assert_eq!(answer.status(), 202);
        self.posted.push(answer);
    }

    /// The server gets this and accepts it.
    async fn gets(&mut self, wanted: &[u8]) {
        let asked = self.rig.asked().await;
        assert_eq!(asked.what(), "POST /base/messages?session_id=1");
        assert_eq!(asked.text(), String::from_utf8_lossy(wanted));
        let length = asked.request.header("content-length").unwrap();
        assert_eq!(length, wanted.len().to_string());
        asked.accept();
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn transcripts_come_out_the_same_and_at_the_same_times_on_an_http_sse_stream() {
    let mut skipped = BTreeSet::new();
    for transcript in transcripts_of_one_client() {
        let (name, text) = (transcript.key(), transcript.text);
        if let Some((skip, _)) = NOT_ON_A_WIRE.iter().find(|(skip, _)| is_named(&name, skip)) {
            skipped.insert(*skip);
            continue;
        }
        // Transcripts with several client streams are played below; a server over HTTP has no standard error.
        if text.lines().any(|line| line.starts_with("! open") || line.starts_with("2 ")) {
            continue;
        }
        // Comments do not belong to any transcript.
        let mut wire = Wire::open(rig(&text)).await;
        let begin = wire.rig.now();
        let mut said_gone = None;
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let (sign, rest) = line.split_at(line.len().min(2));
            match sign {
                "> " if said_gone.is_none() => {
                    let said = unprintable(rest);
                    let sent = lines.get(at + 1).and_then(|line| line.strip_prefix("^ "));
                    match sent.map(unprintable) {
                        Some(besides) if rest.contains(r#""notifications/initialized""#) => {
                            wire.post(&said).await;
                            wire.gets(&besides).await;
                        }
                        wanted => wire.post_as(&said, wanted.as_ref().unwrap_or(&said)).await,
                    }
                }
                "< " => wire.server.say(unprintable(rest)),
                "+ " => pass(duration(rest)).await,
                "! " => {
                    if let Some(why) = rest.strip_prefix("gone ") {
                        said_gone = Some(why.to_owned());
                        wire.server.end();
                    }
                }
                _ => continue,
            }
            settle().await;
        }
        settle().await;
        let mut wanted = expected(&text).remove(&0).unwrap_or_default();
        if let Some(why) = &said_gone {
            let own = "the server closed the stream";
            wanted.iter_mut().for_each(|(_, text)| *text = text.replace(why, own));
        }
        assert_eq!(told(&wire.stream, begin), wanted, "{name}");
        assert_eq!(wire.stream.is_over(), said_gone.is_some(), "{name}");
        assert_eq!(counted(&wire.rig), withheld(&text), "{name}: reasons in the metrics");
        // In observe mode, and with repairs turned off, clients get messages that break the rules.
        if !text.contains("mode=observe") && !text.contains("orphan-answer=off") {
            check(wire.posted.iter().chain([&wire.stream]));
        }
    }
    assert_eq!(skipped.len(), NOT_ON_A_WIRE.len(), "only {skipped:?} are there");
}

/// Several streams of one session, numbered as in the transcript.
#[derive(Default)]
struct Streams {
    answers: BTreeMap<u64, Answer>,
    servers: BTreeMap<u64, Asked>,
    /// The server's messages on streams on which the client listens.
    heard: BTreeMap<u64, Vec<String>>,
}

#[tokio::test(start_paused = true)]
async fn transcripts_of_several_streams_come_out_the_same_on_the_streams_of_one_session() {
    const SESSION: &str = "Mcp-Session-Id: s";
    let mut count = 0;
    for transcript in transcripts_of_one_client() {
        let (name, text) = (transcript.key(), transcript.text);
        if !text.contains("\n! open ") || text.contains("shared=on") {
            continue;
        }
        count += 1;
        let mut rig = rig(&text);
        rig.session("s", "2025-06-18").await;
        let begin = rig.now();
        let mut streams = Streams::default();
        for line in text.lines() {
            let (sign, rest) = line.split_at(line.len().min(1));
            let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let words: Vec<&str> = text.split(' ').collect();
            match sign {
                "!" if words[0] == "open" => {
                    let number = words[1].parse().unwrap();
                    if words[2] == "shared" {
                        streams.answers.insert(number, rig.get(&[SESSION]));
                        let asked = rig.asked().await;
                        asked.events(&[]);
                        streams.servers.insert(number, asked);
                    }
                }
                "!" if words[0] == "close" => {
                    let number: u64 = words[1].parse().unwrap();
                    streams.answers[&number].leave();
                    settle().await;
                    let gone = streams.servers[&number].left().is_some();
                    assert!(gone, "{name}: the server still speaks for stream {number}");
                }
                "+" => pass(duration(text)).await,
                ">" => {
                    let number = number.parse().unwrap();
                    streams.answers.insert(number, rig.post(&[SESSION], unprintable(text)));
                    let asked = rig.asked().await;
                    asked.events(&[]);
                    streams.servers.insert(number, asked);
                }
                // The server has no other streams.
                "<" if number.is_empty() => {}
                "<" => {
                    let number = number.parse().unwrap();
                    streams.servers[&number].say(unprintable(text));
                    streams.heard.entry(number).or_default().push(text.to_owned());
                }
                _ => continue,
            }
            settle().await;
        }
        let wanted = expected(&text);
        for (number, answer) in &streams.answers {
            let told = told(answer, begin);
            match wanted.get(number) {
                Some(wanted) => assert_eq!(told, *wanted, "{name}: stream {number}"),
                // The messages of a listening stream arrived on that stream.
                None => {
                    let mut heard = streams.heard.remove(number).unwrap_or_default().into_iter();
                    for (_, text) in told {
                        assert!(heard.any(|heard| heard == text), "{name}: {text} on {number}");
                    }
                }
            }
        }
        check(streams.answers.values());
    }
    assert!(count >= 5, "{count}");
}
