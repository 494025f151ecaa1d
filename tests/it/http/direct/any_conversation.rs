//! The rules for every conversation over HTTP, however the bytes of the server are cut.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::core::random_talk::{Said, Step, Talk, respelled, steps};
use crate::http::raw;
use crate::http::rig::{Answer, Asked, Rig, check, pass, secs, settle};
use crate::support::messages::*;

const S: &str = "Mcp-Session-Id: s";

/// Runs one case with a clock of its own.
fn run<F: Future<Output = ()>>(case: F) -> TestCaseResult {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(case);
    Ok(())
}

/// Blocks that are neither progress nor an answer. They must pass unchanged.
const OTHERS: [&str; 16] = [
    ": ping\n\n",
    ":\r\n\r\n",
    "\n",
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"€ 𝄞\"}}\n\n",
    "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"s1\",\"method\":\"sampling/createMessage\"}\n\n",
    "data:{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\r\n\r\n",
    "data: {\"jsonrpc\":\"2.0\",\r\ndata: \"method\":\"notifications/tools/list_changed\"}\r\n\r\n",
    "event: ping\ndata: 2026-01-01\n\n",
    "event: endpoint\ndata: /elsewhere\n\n",
    "event: note\ndata: no JSON\n\n",
    "event: note\ndata: {\"x\":NaN}\n\n",
    "id: g\ndata\n\n",
    "id: e\ndata:\n\n",
    "id: f\nretry: 100\n: c\ndata: {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"notifications/progress\",\"params\":{}}\n\n",
    "retry: 5\n\n",
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\"\u{2028}\"}\n\n",
];

/// The text that a server puts on a stream.
#[derive(Debug, Clone)]
enum Piece {
    Other(u8),
    /// Progress: token, figure, in what frame.
    Progress([u8; 3]),
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece =
        prop_oneof![any::<u8>().prop_map(Piece::Other), any::<[u8; 3]>().prop_map(Piece::Progress)];
    prop::collection::vec(piece, 0..30)
}

/// The bytes of a piece.
fn bytes(piece: &Piece) -> String {
    match piece {
        Piece::Other(which) => OTHERS[usize::from(*which) % OTHERS.len()].to_owned(),
        Piece::Progress([token, figure, frame]) => {
            let tokens = ["7", "7", "7", "8", "\"7\"", "\"u\"", "null"];
            let figures = ["null", "-1", "0", "0.5", "1", "2", "10", "50", "1e3", "\"x\""];
            let token = tokens[usize::from(*token) % tokens.len()];
            let figure = figures[usize::from(*figure) % figures.len()];
            let message = progress(token, figure);
            match *frame % 4 {
                0 => format!("data:{message}\r\n\r\n"),
                1 => format!("event: mcpNotification\ndata: {message}\n\n"),
                2 => format!("id: p\n{}", event(&message)),
                _ => event(&message),
            }
        }
    }
}

fn is_progress(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("notifications/progress") && !text.contains("\"id\":5")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every message that is not progress reaches the client byte for byte and in order, on the stream of a request and
    /// on a stream on which the client listens.
    #[test]
    fn what_is_not_progress_passes_byte_for_byte_however_it_is_cut(
        pieces in pieces(),
        cuts in prop::collection::vec(1..200usize, 1..20),
        pauses in any::<u8>(),
        listens in any::<bool>(),
    ) {
        run(async {
            let mut rig = Rig::new("");
            rig.session("s", "2025-06-18").await;
            let posted = rig.post(&[S], call("1", "7"));
            let server = rig.asked().await;
            let listened = if listens {
                server.events(&[]);
                let answer = rig.get(&[S]);
                Some((answer, rig.asked().await))
            } else {
                None
            };
            let (answer, speaks) =
                listened.as_ref().map_or((&posted, &server), |(answer, asked)| (answer, asked));
            speaks.events(&[]);
            let all: Vec<String> = pieces.iter().map(bytes).collect();
            let text = all.concat();
            let (mut rest, mut sizes) = (text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let size = (*sizes.next().unwrap()).min(rest.len());
                let (chunk, more) = rest.split_at(size);
                speaks.chunk(chunk);
                if usize::from(pauses) & size != 0 {
                    settle().await;
                }
                if size == 42 {
                    pass(secs(3)).await;
                }
                rest = more;
            }
            if listened.is_none() {
                speaks.say(result("1"));
            }
            speaks.end();
            settle().await;
            assert!(answer.is_over());
            // The last line end of a dropped event may remain if it arrived separately.
            let kept = |bytes: &[u8]| -> Vec<String> {
                let ours = |block: &&raw::Block| {
                    let blank = block.raw.iter().all(u8::is_ascii_whitespace);
                    blank || block.raw == b": keep-alive\n\n" || is_progress(&block.raw)
                };
                let blocks = raw::blocks(bytes);
                let others = blocks.iter().filter(|block| !ours(block));
                others.map(|block| String::from_utf8_lossy(&block.raw).into_owned()).collect()
            };
            let answered = if listened.is_none() { event(&result("1")) } else { String::new() };
            let wanted = text + &answered;
            assert_eq!(kept(&answer.body()), kept(wanted.as_bytes()));
            check([answer, &posted].into_iter().take(if listens { 2 } else { 1 }));
        })?;
    }

    /// The rules of progress hold for every message that the client of a session gets, whatever the server sends on any
    /// stream of the session.
    #[test]
    fn a_client_of_a_session_is_told_nothing_that_it_cannot_accept(
        steps in steps(),
        dice in prop::collection::vec(any::<u8>(), 48),
        revision in 0..3usize,
        json in any::<bool>(),
    ) {
        run(async {
            let mut rig = Rig::new("dialects = [\"defaults\", \"lsp\", \"tasks-progress\", \"text-chunk\"]");
            let revision = ["2025-03-26", "2025-06-18", "2025-11-25"][revision];
            rig.session("s", revision).await;
            let listens = rig.get(&[S]);
            let listened = rig.asked().await;
            listened.events(&[]);
            let mut told = Streams { all: vec![(listens, listened)], tokens: BTreeSet::new(), by_id: BTreeMap::new(), begun: vec![0] };
            let mut talk = Talk::default();
            for (step, die) in steps.iter().zip(dice.iter().cycle()) {
                told.play(&mut rig, &mut talk, step, *die, json).await;
            }
            pass(secs(20)).await;
            check(told.all.iter().map(|(answer, _)| answer));
        })?;
    }
}

/// The streams of one session. On the first one the client listens.
struct Streams {
    all: Vec<(Answer, Asked)>,
    /// The tokens of its requests. Each is used once: two requests with one token may be two clients', and the
    /// figure of each rises on its own stream only.
    tokens: BTreeSet<String>,
    /// The stream of each request.
    by_id: BTreeMap<String, usize>,
    /// The streams on which the server has begun to send events.
    begun: Vec<usize>,
}

/// Returns the id of a message, exactly as written.
fn id(text: &str) -> Option<String> {
    let rest = &text[text.find("\"id\":")? + 5..];
    Some(rest[..rest.find([',', '}'])?].to_owned())
}

/// Returns the token of a request, without its quotes and escapes.
fn token(text: &str) -> Option<String> {
    let rest = &text[text.find("\"progressToken\":")? + 16..];
    let token = rest[..rest.find([',', '}'])?].trim();
    Some(serde_json::from_str(token).unwrap_or_else(|_| token.to_owned()))
}

impl Streams {
    async fn play(&mut self, rig: &mut Rig, talk: &mut Talk, step: &Step, die: u8, json: bool) {
        match talk.put(step, false) {
            None | Some(Said::Stall(_) | Said::Errors(_)) => {}
            Some(Said::Wait(time)) => pass(time.min(secs(20))).await,
            Some(Said::Client(text)) => {
                if token(&text).is_some_and(|token| !self.tokens.insert(token)) {
                    return;
                }
                let answer = rig.post(&[S], &text);
                let asked = rig.asked().await;
                if text.contains("notifications/") {
                    asked.accept();
                } else {
                    // Some answers come as JSON, and progress for them elsewhere.
                    if !json || !die.is_multiple_of(4) {
                        asked.events(&[]);
                        self.begun.push(self.all.len());
                    }
                    self.by_id.insert(id(&text).unwrap(), self.all.len());
                }
                self.all.push((answer, asked));
            }
            Some(Said::Server(text)) => self.server(&text, die),
            Some(Said::ServerInPieces(pieces)) => self.server(&pieces.concat(), die),
        }
        settle().await;
    }

    /// Answers come on the stream of their request, everything else anywhere.
    fn server(&self, text: &str, die: u8) {
        // An array about requests of several streams is nothing that a server may send.
        if text.starts_with('[') {
            return;
        }
        let answers = text.contains("\"result\"") || text.contains("\"error\"");
        // Answers with another spelling of the id count too: the response of a request must not be empty, whatever came
        // on other streams.
        let of = |id: String| self.by_id.get(&id).or_else(|| self.by_id.get(&respelled(&id)));
        let own = id(text).filter(|_| answers).and_then(of);
        let streams: Vec<usize> = self.by_id.values().copied().chain([0]).collect();
        let stream = own.copied().unwrap_or_else(|| streams[usize::from(die) % streams.len()]);
        let asked = &self.all[stream].1;
        if self.begun.contains(&stream) {
            asked.say(text);
        } else if own.is_some() {
            asked.json(&[], text);
        }
    }
}
