//! Conversations between a client and a legacy server, made from numbers. They contain everything that either side may
//! send, and prefer unusual messages.

use bytes::Bytes;
use milepost_core::protocol::jsonrpc::Key;
use proptest::prelude::*;

/// One step of a conversation. The numbers choose from lists whose first entries are the simplest, so that failing
/// cases shrink towards simple ones.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A request: its token, its method, and its form.
    Open([u8; 3]),
    /// The client gives up a call.
    Cancel(u8),
    /// An answer: its call and its form.
    Answer([u8; 2]),
    /// Progress: its call, dialect, name, value, total, text, and further members.
    Progress([u8; 7]),
    /// The end of a task: the task and its form.
    Task([u8; 2]),
    /// Any other message of a server.
    Other(u8),
    /// A line of text that is not for the client: where it is written, and its text.
    Text([u8; 2]),
    /// Several steps of the server in one array.
    Batch(Vec<Self>),
    /// An answer or another message that is too long to be kept whole, divided at these places.
    Large([u8; 2], Vec<u8>),
    /// Time passes.
    Wait(u8),
    /// The client stops reading, or reads again.
    Stall(bool),
}

/// Tokens in the client's own spelling. The last entries are not valid tokens.
pub(crate) const TOKENS: [&str; 20] = [
    "7",
    "0",
    "\"\"",
    "-1",
    "\"0\"",
    "1",
    "9007199254740993",
    "9007199254740992",
    "1180591620717411303424",
    "1.0",
    "1e2",
    "\"a\\u0062\"",
    "\"ab\"",
    "\"\\/\\\"\"",
    "\"550e8400-e29b-41d4-a716-446655440000\"",
    "-0",
    "true",
    "null",
    "1.5",
    "{\"a\":1}",
];

const IDS: [&str; 12] = [
    "1",
    "2",
    "0",
    "\"1\"",
    "\"\"",
    "-1",
    "\"req-7\"",
    "9007199254740993",
    "9007199254740992",
    "\"\\u0061b\"",
    "3e2",
    "18446744073709551616",
];

const FIGURES: [&str; 26] = [
    "1",
    "2",
    "3",
    "10",
    "50",
    "100",
    "0",
    "0.5",
    "0.25",
    "1",
    "-1",
    "-0.0",
    "1e999",
    "-1e999",
    "NaN",
    "null",
    "\"5\"",
    "\"x\"",
    "{}",
    "[]",
    "true",
    "1e300",
    "1.7976931348623157e308",
    "5e-324",
    "9007199254740993",
    "1E2",
];

const WORDS: [&str; 12] = [
    "",
    "\"m\"",
    "\"m\"",
    "\"\"",
    "null",
    "5",
    "{\"a\":1}",
    "\"\\u00e9\\n\\u001b[1m\"",
    "\"45% of it\"",
    "\"12/13\"",
    "NaN",
    "\"\u{fe0f}\u{2028}\"",
];

const EXTRAS: [&str; 12] = [
    "",
    "",
    "\"status\":\"in_progress\"",
    "\"percent\":50",
    "\"current\":3,\"total_steps\":9",
    "\"x\":1e999",
    "\"_meta\":{\"a\":1}",
    "\"_meta\":null",
    "\"message\":\"again\"",
    "\"progress\":4",
    "\"value\":{\"kind\":\"report\",\"percentage\":40,\"message\":\"v\"}",
    "\"data\":{\"chunk\":\"c\"}",
];

const OTHERS: [&str; 12] = [
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"50%"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{"messages":[]}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"notifications/progress","params":{}}"#,
    "Server listening on 3000",
    "{'method': 'x'}",
    r#"{"jsonrpc":"2.0","x":NaN}"#,
    r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":[1]}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
];

const LINES: [&str; 12] = [
    "compiling",
    "45%",
    "12/13 files",
    "3 of 7",
    "epoch 99/10",
    "compiling",
    "{\"msg\":\"m\",\"progress\":4,\"total\":9}",
    "{\"progressData\":{\"message\":\"m\",\"percent\":40}}",
    "{\"job\":{\"pct\":1e300,\"text\":5}}",
    "{\"msg\":null,\"percent\":1e999}",
    "----",
    "\u{e9}\u{2028}\u{fe0f} 0.5/1 token=\"s3cret\"",
];

/// A method whose requests have a token but get no progress.
const LISTEN: &str = "subscriptions/listen";

const WAITS: [u64; 12] = [1, 5, 20, 30, 31, 49, 60, 100, 150, 1000, 2500, 70_000];

#[derive(Debug, Clone)]
struct Call {
    id: &'static str,
    method: &'static str,
    token: Option<&'static str>,
    task: Option<usize>,
    asks_for_task: bool,
    /// Whether the call is neither answered nor given up, as far as can be known.
    open: bool,
    /// Whether the call is certainly unanswered.
    waits: bool,
}

/// The calls so far, so that the next step can be turned into a message.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    calls: Vec<Call>,
    /// Number of tasks so far.
    tasks: usize,
    /// Whether steps are left out that a chain of two proxies may handle differently than one proxy: a final marker in
    /// the standard dialect, because it would end the dialect in which the inner proxy sends all its progress; and one
    /// token in two spellings.
    chained: bool,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Said {
    Client(String),
    Server(String),
    ServerInPieces(Vec<String>),
    /// A line of the server on standard error.
    Errors(String),
    Wait(std::time::Duration),
    Stall(bool),
}

impl Talk {
    /// Returns a conversation that a chain of two proxies handles in the same way as one proxy.
    pub(crate) fn chained() -> Self {
        Self { chained: true, ..Self::default() }
    }

    /// Turns a step into a message; `None` if the step has no meaning now. `all_told`: the client has read all answers,
    /// so names may be used again.
    pub(crate) fn put(&mut self, step: &Step, all_told: bool) -> Option<Said> {
        Some(match step {
            Step::Open(dress) => Said::Client(self.open(*dress, all_told)?),
            Step::Cancel(call) => {
                let call = self.pick(*call)?;
                let id = self.calls[call].id;
                let users = self.calls.iter().filter(|call| call.id == id).count();
                // The name was used before, or the client does not know the task yet. A cancellation could then mean
                // two calls.
                let Call { open, waits, .. } = self.calls[call];
                let crossed = (!open || !waits) && (users > 1 || self.chained);
                if crossed || (self.calls[call].task.is_some() && !all_told) {
                    return None;
                }
                self.close(|call| call.id == id && call.method != "initialize");
                Said::Client(format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                ))
            }
            Step::Batch(steps) => {
                let inside = |step: &Step| match self.put(step, all_told)? {
                    // Only a single message can be an element of an array.
                    Said::Server(text) => {
                        Some(text).filter(|text| text.starts_with("{\"") && !text.contains("}{"))
                    }
                    _ => None,
                };
                let all: Vec<String> = steps.iter().filter_map(inside).collect();
                Said::Server(format!("[{}]", all.join(" ,")))
            }
            Step::Large([call, how], cuts) => {
                // This message is forwarded without repairs, so it must not need one.
                self.pick(*call).filter(|call| {
                    let call = &self.calls[*call];
                    call.open && call.waits && !call.asks_for_task
                })?;
                let text = self.answer([*call, [0, 4, 12, 13][usize::from(*how) % 4]])?;
                Said::ServerInPieces(cut(&text, cuts))
            }
            Step::Wait(which) => {
                let millis = WAITS[usize::from(*which) % WAITS.len()];
                Said::Wait(std::time::Duration::from_millis(millis))
            }
            Step::Stall(stalled) => Said::Stall(*stalled),
            Step::Answer(dress) => Said::Server(self.answer(*dress)?),
            Step::Progress(dress) => Said::Server(self.progress(*dress)?),
            Step::Task(dress) => self.task(*dress)?,
            Step::Text([place, which]) => {
                let line = LINES[usize::from(*which) % LINES.len()];
                let data = if line.starts_with('{') { line.to_owned() } else { quoted(line) };
                let logger = ["", r#""logger":"server.scan","#][usize::from(*place) / 3 % 2];
                match place % 3 {
                    0 => Said::Errors(line.to_owned()),
                    1 => Said::Server(format!(
                        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info",{logger}"data":{data}}}}}"#
                    )),
                    // The line must not be JSON, because JSON could be taken for a message.
                    _ => Said::Server(line.replace('{', "(")),
                }
            }
            Step::Other(which) => {
                let text = OTHERS[usize::from(*which) % OTHERS.len()];
                if text.contains("requestId") {
                    // This may end a `subscriptions/listen` without an answer.
                    let first = self.calls.iter_mut().filter(|call| call.id == IDS[0]);
                    first.for_each(|call| call.waits = false);
                }
                Said::Server(text.to_owned())
            }
        })
    }

    fn pick(&self, call: u8) -> Option<usize> {
        (!self.calls.is_empty())
            .then(|| self.calls.len() - 1 - usize::from(call) % self.calls.len())
    }

    fn close(&mut self, which: impl Fn(&Call) -> bool) {
        self.calls.iter_mut().filter(|call| which(call)).for_each(|call| call.open = false);
    }

    fn open(&mut self, [token, method, dress]: [u8; 3], all_told: bool) -> Option<String> {
        let free = |id: &&&str| {
            let mut users = self.calls.iter().filter(|call| call.id == **id);
            // The first id is not used again, because the server may end its request itself (`OTHERS`).
            let again = all_told && **id != IDS[0];
            if again { !users.any(|call| call.open) } else { users.next().is_none() }
        };
        let id = IDS.iter().find(free)?;
        let token = *TOKENS.get(usize::from(token) % (TOKENS.len() + 2)).unwrap_or(&"");
        let token = Some(token).filter(|token| {
            let key = |token: &str| Key::read(&Bytes::copy_from_slice(token.as_bytes()));
            let other = |call: &&Call| {
                call.token.is_some_and(|own| own != *token && key(own) == key(token))
            };
            if self.chained && self.calls.iter().any(|call| other(&call)) {
                return false;
            }
            let mut users = self.calls.iter().filter(|call| call.token == Some(token));
            let shared = users.clone().any(|call| call.method == LISTEN) || method % 16 == 3;
            !token.is_empty() && users.next().is_none_or(|_| all_told && !shared)
        });
        let method = match method % 16 {
            0 => "ping",
            1 => "initialize",
            2 => "resources/read",
            3 => LISTEN,
            _ => "tools/call",
        };
        let asks_for_task = dress % 8 == 7;
        self.calls.push(Call {
            id,
            method,
            token,
            task: None,
            asks_for_task,
            open: true,
            waits: true,
        });
        let mut meta = token.map(|token| format!(r#""progressToken":{token}"#)).unwrap_or_default();
        if dress % 8 == 6 {
            meta =
                format!(r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","x":1,{meta}"#);
        }
        let meta = meta.trim_end_matches(',');
        let more = match (method, dress % 8) {
            ("initialize", 5) => r#","clientInfo":{"name":"rmcp"}"#,
            (_, 7) => r#","task":{}"#,
            _ => "",
        };
        let name = ["scan", "fix", "scan"][usize::from(dress) % 3];
        Some(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"{name}","_meta":{{{meta}}}{more}}}}}"#
        ))
    }

    fn answer(&mut self, [call, how]: [u8; 2]) -> Option<String> {
        let call = self.pick(call)?;
        let Call { id, asks_for_task, .. } = self.calls[call];
        let other = respelled(id);
        let meant = |call: &&mut Call| call.id == id || call.id == other;
        self.calls.iter_mut().filter(meant).for_each(|call| call.waits = false);
        // Answers of the other kinds may not reach this call.
        if !matches!(how % 16, 7 | 10 | 11) {
            self.close(|call| call.id == id);
        }
        let plain = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#);
        let task = self.tasks;
        Some(match how % 16 {
            _ if asks_for_task && how % 2 == 0 => {
                self.calls[call].task = Some(task);
                self.tasks += 1;
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"task":{{"taskId":"T{task}","status":"working"}}}}}}"#
                )
            }
            0..4 => plain,
            4 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#),
            5 => format!(r#"{{"id":{id},"error":{{"code":-32602,"message":"no"}}}}"#),
            6 => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"broken"}}"#),
            7 => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, respelled(id)),
            8 => format!("{plain}{plain}"),
            9 => format!(r#"{plain}{{"jsonrpc":"2.0","id":"none","result":{{}}}}"#),
            10 => r#"{"jsonrpc":"2.0","id":"nobody","result":{}}"#.to_owned(),
            11 => r#"{"jsonrpc":"2.0","id":null,"result":{}}"#.to_owned(),
            12 => format!(r#"{{"jsonrpc":"2.0","result":{{"rows":[1]}},"id":{id}}}"#),
            13 => {
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-03-26"}}}}"#
                )
            }
            14 => {
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2024-11-05"}}}}"#
                )
            }
            _ => format!(r#"{{"id":{id},"result":{{"isError":true,"content":[]}},"id":{id}}}"#),
        })
    }

    fn progress(&self, dress: [u8; 7]) -> Option<String> {
        let [_, dialect, name, figure, total, words, more] = dress.map(usize::from);
        let call = &self.calls[self.pick(dress[0])?];
        let own = call.token.unwrap_or("\"none\"");
        let about = match name % 10 {
            0..4 => own.to_owned(),
            4 => call.id.to_owned(),
            5 => respelled(own),
            6 => "\"shell_01\"".to_owned(),
            7 => format!("\"invented-{figure}\""),
            8 => "null".to_owned(),
            _ => TOKENS[figure % TOKENS.len()].to_owned(),
        };
        let figure = FIGURES[figure % FIGURES.len()];
        let total = FIGURES.get(total % (2 * FIGURES.len())).map_or("", |total| *total);
        let words = WORDS[words % WORDS.len()];
        let member = |name: &str, value: &str| {
            if value.is_empty() { String::new() } else { format!(r#","{name}":{value}"#) }
        };
        let last = match (self.chained, more % 7) {
            (false, 6) => r#","isFinal":true"#,
            _ => "",
        };
        let extra = EXTRAS[more % EXTRAS.len()];
        let extra = if extra.is_empty() { String::new() } else { format!(",{extra}") };
        let id = call.id;
        Some(match dialect % 18 {
            0..8 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{about},"progress":{figure}{}{}{extra}{last}}}}}"#,
                member("total", total),
                member("message", words),
            ),
            8 => format!(
                r#"{{"method":"notifications\/progress","params":{{"token":{about}{}{extra}}},"method":"notifications/progress"}}"#,
                member("message", words)
            ),
            9 => format!(
                r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"id":{id},"content":[{{"type":"text","text":{}}}],"isFinal":{}}}}}"#,
                Some(words).filter(|words| !words.is_empty()).unwrap_or(STATUS),
                more % 7 == 6,
            ),
            10 => format!(
                r#"{{"jsonrpc":"2.0","method":"tools/progress","params":{{"toolCallId":{about},"update":{{"delta":"d"}}}}}}"#
            ),
            11 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{{"toolName":"scan","progress":{figure}{}}}}}"#,
                member("message", words)
            ),
            12 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/progress","params":{{"requestId":{id},"chunk":"c{more}"}}}}"#
            ),
            13 => format!(
                r#"{{"jsonrpc":"2.0","method":"$/progress","params":{{"token":{about},"value":{{"kind":"report","percentage":{figure}}}}}}}"#
            ),
            14 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/stream","params":{{"toolName":"fix","text":"t{more}"}}}}"#
            ),
            15 => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tasks/progress","params":{{"taskId":"T{}","progress":{figure}}}}}"#,
                call.task.unwrap_or(0)
            ),
            16 => format!(
                r#"{{"method":"acme/status","params":{{"job":{about},"pct":{figure}{}}}}}"#,
                member("text", words)
            ),
            _ => format!(
                r#"{{"method":"acme/status","params":{{"id":{id},"text":"{{\"state\":\"done\"}}"}}}}"#
            ),
        })
    }

    fn task(&self, [which, how]: [u8; 2]) -> Option<Said> {
        let tasks: Vec<usize> = self.calls.iter().filter_map(|call| call.task).collect();
        let task = *tasks.get(usize::from(which) % tasks.len().max(1))?;
        let status = ["working", "completed", "failed", "input_required"][usize::from(how) % 4];
        Some(Said::Server(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{{"taskId":"T{task}","status":"{status}"}}}}"#
        )))
    }
}

/// The text of a server that reports its work as JSON in a string.
const STATUS: &str = r#""{\"status\":\"in_progress\",\"percentComplete\":15}""#;

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the other spelling of a name, which a careless server may send back.
pub(crate) fn respelled(text: &str) -> String {
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inner) if inner.parse::<i64>().is_ok() => inner.to_owned(),
        Some(_) => text.to_owned(),
        None => format!("\"{text}\""),
    }
}

/// Divides a text into pieces. The first piece is long enough to show whether the text is a message.
pub(crate) fn cut(text: &str, cuts: &[u8]) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut least = 40;
    for &size in cuts {
        let mut at = usize::from(size).max(least).min(rest.len());
        while !rest.is_char_boundary(at) {
            at += 1;
        }
        least = 1;
        let (piece, more) = rest.split_at(at);
        pieces.push(piece.to_owned());
        rest = more;
    }
    pieces.push(rest.to_owned());
    pieces
}

/// Generates conversations of all kinds.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let server = prop_oneof![
        8 => any::<[u8; 7]>().prop_map(Step::Progress),
        3 => any::<[u8; 2]>().prop_map(Step::Answer),
        1 => any::<[u8; 2]>().prop_map(Step::Task),
        1 => any::<u8>().prop_map(Step::Other),
        2 => any::<[u8; 2]>().prop_map(Step::Text),
    ];
    let batch = prop::collection::vec(server.clone(), 0..5).prop_map(Step::Batch);
    let large = (any::<[u8; 2]>(), prop::collection::vec(any::<u8>(), 0..4));
    let step = prop_oneof![
        4 => any::<[u8; 3]>().prop_map(Step::Open),
        1 => any::<u8>().prop_map(Step::Cancel),
        12 => server,
        1 => batch,
        1 => large.prop_map(|(answer, cuts)| Step::Large(answer, cuts)),
        5 => any::<u8>().prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::Stall),
    ];
    (any::<[u8; 3]>(), prop::collection::vec(step, 0..40))
        .prop_map(|(first, rest)| std::iter::once(Step::Open(first)).chain(rest).collect())
}
