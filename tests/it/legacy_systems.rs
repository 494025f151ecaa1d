//! What clients show of five legacy systems, without Milepost and with it: the table in `docs/legacy-systems.md`. Each
//! row plays an example server over a transport of the real one.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::core::neighbours;
use crate::http::serve::proxy::{Proxy, Start};
use crate::support::exchange::Exchange;
use crate::support::server::Server;
use crate::support::{example, milepost};

/// How long a client waits for more before it gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Messages on the GET stream and in the response to a POST that arrive within this time have no defined order.
const STREAMS_APART: Duration = Duration::from_millis(100);

/// When a client that opens no GET stream calls: `own_get` waits 2 s for the client's own.
const FIRST_CALL: Duration = Duration::from_millis(4000);

/// The time between the steps of a server: long enough that reports arrive separately and are not thinned.
const PACE: &str = "250ms";

#[derive(Clone, Copy, PartialEq)]
enum Over {
    Stdio,
    /// A client that opens a GET stream.
    Http,
    /// A client that opens none.
    HttpWithoutGet,
    /// HTTP+SSE of 2024-11-05, spoken in front of the stdio example.
    Sse,
}
use Over::{Http, HttpWithoutGet, Sse, Stdio as Pipe};

struct Row {
    dialect: &'static str,
    says: &'static str,
    server: &'static [&'static str],
    tool: &'static str,
    over: &'static [Over],
    /// The preset; empty: the defaults do.
    preset: &'static str,
}

const fn row(
    dialect: &'static str,
    says: &'static str,
    server: &'static [&'static str],
    tool: &'static str,
    over: &'static [Over],
    preset: &'static str,
) -> Row {
    Row { dialect, says, server, tool, over, preset }
}

const DEPENDENCIES: &str = "get-component-dependencies";

static SYSTEMS: [(&str, &[Row]); 5] = [
    (
        "KuzuMem-MCP",
        &[
            row(
                "K1",
                "`tools/progress`, JSON in a string, by request id",
                &["kuzumem", "--variant", "k1"],
                DEPENDENCIES,
                &[Pipe],
                "",
            ),
            row(
                "K2",
                "K1 in events of other names, no `initialize`, streams that stay open",
                &["kuzumem", "--variant", "k2"],
                DEPENDENCIES,
                &[Http],
                "kuzumem-handwritten",
            ),
            row(
                "K3",
                "K1 by the id as a string, bare results, text on standard output",
                &["kuzumem", "--variant", "k3s"],
                DEPENDENCIES,
                &[Pipe],
                "",
            ),
            row(
                "K3",
                "K2 with `RichText`, on better-sse",
                &["kuzumem", "--variant", "k3h"],
                DEPENDENCIES,
                &[Http],
                "kuzumem-handwritten",
            ),
            row(
                "K4",
                "no `progress`; the request id as token; text on standard output",
                &["kuzumem", "--variant", "k4"],
                DEPENDENCIES,
                &[Pipe],
                "kuzumem-sdk",
            ),
            row(
                "K5",
                "no `progress`; the request id as token; `percent` beside it",
                &["kuzumem", "--variant", "k5"],
                DEPENDENCIES,
                &[Http],
                "kuzumem-sdk",
            ),
            row(
                "K6",
                "`tools/progress` for a request \"unknown\", which is answered too",
                &["kuzumem", "--variant", "k6"],
                DEPENDENCIES,
                &[Pipe],
                "kuzumem-sdk",
            ),
            row(
                "K7",
                "JSON lines on standard error",
                &["kuzumem", "--variant", "head"],
                "memory-bank",
                &[Pipe],
                "kuzumem",
            ),
        ],
    ),
    (
        "Plexus",
        &[
            row(
                "P0",
                "invented tokens, the number of the event as `progress`",
                &["plexus", "--variant", "p0"],
                "claudecode.chat",
                &[Http],
                "",
            ),
            row(
                "P1",
                "1 to N of N; content as logs on the GET stream",
                &["plexus", "--variant", "p1"],
                "claudecode.chat",
                &[Http, HttpWithoutGet],
                "plexus",
            ),
            row(
                "P2",
                "0.0 again and again; content as logs on the GET stream",
                &["plexus", "--variant", "p2"],
                "claudecode.chat",
                &[Http, HttpWithoutGet],
                "plexus",
            ),
            row(
                "P2",
                "percentages without total, which fall back",
                &["plexus", "--variant", "p2"],
                "orcha.run_task",
                &[Http, HttpWithoutGet],
                "plexus",
            ),
        ],
    ),
    (
        "SwissArmyHammer",
        &[
            row(
                "S0",
                "keys in snake case, invented tokens, `progress` missing or null",
                &["swissarmyhammer", "--variant", "s0"],
                "flow",
                &[Pipe],
                "",
            ),
            row(
                "S1",
                "log messages; over HTTP on the GET stream",
                &["swissarmyhammer", "--variant", "s1"],
                "shell",
                &[Pipe, Http, HttpWithoutGet],
                "swissarmyhammer",
            ),
            row(
                "S2",
                "values that repeat, totals that grow",
                &["swissarmyhammer", "--variant", "s2"],
                "code_context",
                &[Pipe, Http],
                "",
            ),
        ],
    ),
    (
        "mcp-devtools",
        &[
            row(
                "M1",
                "a token in the arguments only; a report for each line",
                &["mcp_devtools", "--lines", "9"],
                "project_actions",
                &[Pipe, Http, Sse],
                "mcp-devtools",
            ),
            row(
                "M2",
                "log messages without a logger",
                &["mcp_devtools"],
                "code_search",
                &[Pipe, Http, Sse],
                "mcp-devtools",
            ),
        ],
    ),
    (
        "scout",
        &[
            row(
                "C1",
                "1 to N of N; over HTTP on the GET stream",
                &["scout", "--steps"],
                "run_materialization",
                &[Pipe, Http, HttpWithoutGet],
                "scout",
            ),
            row(
                "C2",
                "several tenants: values repeat and fall, totals change",
                &["scout"],
                "run_materialization",
                &[Pipe, Http, HttpWithoutGet],
                "scout",
            ),
        ],
    ),
];

/// A call as its client was shown it.
#[derive(Default)]
struct Shown {
    updates: Vec<String>,
    /// The fate of the answer; empty: it arrived.
    answer: &'static str,
}

impl Shown {
    fn cell(&self) -> String {
        let shown = match &self.updates[..] {
            [] => "nothing".to_owned(),
            [only] => format!("1: {only}"),
            [first, .., last] => format!("{}: {first} … {last}", self.updates.len()),
        };
        match self.answer {
            "" => shown,
            answer => format!("{shown}; **{answer}**"),
        }
    }

    /// Takes a message as a strict client does, which knows its token `"t"` and its id 2; whether the call
    /// is over.
    fn take(&mut self, message: &Value) -> bool {
        let params = &message["params"];
        if message["method"] == "notifications/progress" {
            let total = &params["total"];
            let words = &params["message"];
            let has = |name: &str| params.get(name).is_some();
            let is_valid = params["progress"].is_number()
                && (!has("total") || total.is_number())
                && (!has("message") || words.is_string());
            if params["progressToken"] == "t" && is_valid {
                let total = if total.is_number() { format!("/{total}") } else { String::new() };
                let words = words.as_str().unwrap_or_default().replace('|', "\\|");
                let plain: String = words.chars().filter(|sign| !sign.is_control()).collect();
                self.updates.push(format!("`{}{total}` {plain:?}", params["progress"]));
            }
            return false;
        }
        if message.get("method").is_some() {
            return false;
        }
        let is_ours = message["id"] == 2;
        if !is_ours && message["id"] != "2" {
            return false;
        }
        self.answer = match message.get("result") {
            _ if !is_ours => "the answer has another id",
            Some(result) if !result["content"].is_array() => "the result is no tool result",
            None if !message["error"]["message"].is_string() => "the answer is no error",
            _ => "",
        };
        true
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"plain","version":"0"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn call(tool: &str) -> String {
    let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "t" } });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }).to_string()
}

/// Sends the call, and reads messages until the call is over, and for `grace` longer.
fn listen(messages: &Receiver<Value>, grace: Duration, mut send: impl FnMut()) -> Shown {
    let mut shown = Shown::default();
    send();
    loop {
        match messages.recv_timeout(PATIENCE) {
            Ok(message) if shown.take(&message) => {
                while let Ok(message) = messages.recv_timeout(grace) {
                    shown.take(&message);
                }
                return shown;
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                shown.answer = "no answer arrives";
                return shown;
            }
        }
    }
}

fn over_stdio(command: &mut Command, tool: &str) -> Shown {
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = streams.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (tell, messages) = mpsc::channel::<Value>();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // A line that is not a message is ignored here; some clients close the connection.
            serde_json::from_str(&line).into_iter().for_each(|message| drop(tell.send(message)));
        }
    });
    writeln!(stdin, "{INITIALIZE}").unwrap();
    while messages.recv_timeout(PATIENCE).unwrap()["id"] != 0 {}
    writeln!(stdin, "{INITIALIZED}").unwrap();
    let shown = listen(&messages, Duration::ZERO, || writeln!(stdin, "{}", call(tool)).unwrap());
    drop(stdin);
    let _ = child.wait();
    shown
}

/// The messages of a response in the events that clients read, or in JSON.
fn forward(mut response: Exchange, tell: &mpsc::Sender<Value>) {
    let is_stream = response.header("content-type").unwrap_or_default().contains("event-stream");
    if !is_stream {
        let rest = response.rest();
        serde_json::from_str(&rest).into_iter().for_each(|message| drop(tell.send(message)));
        return;
    }
    while let Ok(Some(event)) = response.try_event() {
        let of = |name: &str| -> Vec<String> {
            let lines = event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            lines.map(|value| value.trim_start().to_owned()).collect()
        };
        let name = of("event").pop().unwrap_or_default();
        if (name.is_empty() || name == "message")
            && let Ok(message) = serde_json::from_str(&of("data").join("\n"))
            && tell.send(message).is_err()
        {
            return;
        }
    }
}

fn over_http(address: &str, path: &str, tool: &str, has_get: bool) -> Shown {
    let send = |method: &str, session: Option<&str>, body: &str| {
        let mut headers = vec![("accept", "application/json, text/event-stream")];
        headers.push(("content-type", "application/json"));
        headers.extend(session.map(|id| ("mcp-session-id", id)));
        Exchange::send(address, method, path, &headers, body)
    };
    let (tell, messages) = mpsc::channel::<Value>();
    let mut begun = send("POST", None, INITIALIZE);
    let session = begun.header("mcp-session-id");
    let session = session.as_deref();
    let first = tell.clone();
    thread::spawn(move || forward(begun, &first));
    match messages.recv_timeout(PATIENCE) {
        Ok(answer) if answer.get("result").is_some() => {}
        _ => return Shown { answer: "no client can begin", ..Shown::default() },
    }
    send("POST", session, INITIALIZED).status();
    if has_get {
        let mut stream = send("GET", session, "");
        if stream.status() == 200 {
            let told = tell.clone();
            thread::spawn(move || forward(stream, &told));
        }
    } else {
        thread::sleep(FIRST_CALL);
    }
    listen(&messages, STREAMS_APART, || {
        let (response, told) = (send("POST", session, &call(tool)), tell.clone());
        thread::spawn(move || forward(response, &told));
    })
}

/// A client of 2024-11-05, on one stream.
fn over_sse(address: &str, path: &str, tool: &str) -> Shown {
    let accept = [("accept", "text/event-stream")];
    let mut stream = Exchange::send(address, "GET", path, &accept, "");
    let endpoint = stream.event().unwrap();
    let endpoint = endpoint.lines().find_map(|line| line.strip_prefix("data:")).unwrap().trim();
    let (tell, messages) = mpsc::channel::<Value>();
    thread::spawn(move || forward(stream, &tell));
    let json = [("content-type", "application/json")];
    let post = |body: &str| Exchange::send(address, "POST", endpoint, &json, body).status();
    post(INITIALIZE);
    while messages.recv_timeout(PATIENCE).unwrap()["id"] != 0 {}
    post(INITIALIZED);
    listen(&messages, Duration::ZERO, || {
        post(&call(tool));
    })
}

/// The texts that are shown without and with Milepost.
fn play(row: &Row, over: Over) -> [Shown; 2] {
    let (name, options) = row.server.split_first().unwrap();
    let options = [options, &["--pace", PACE]].concat();
    let program = example(name);
    let preset = match row.preset {
        "" => String::new(),
        preset => format!("preset = {preset:?}\n"),
    };
    let keys = format!("{preset}heartbeat.enabled = false\n");
    let proxy =
        |upstream: &str, keys: &str| Proxy::with(&Start::default(), &format!("{upstream}\n{keys}"));
    match over {
        Pipe => {
            let without = over_stdio(Command::new(&program).args(&options), row.tool);
            let mut wrap = milepost();
            wrap.args(["wrap", "--no-heartbeat"]);
            if !row.preset.is_empty() {
                wrap.args(["--preset", row.preset]);
            }
            [without, over_stdio(wrap.arg("--").arg(&program).args(&options), row.tool)]
        }
        Http | HttpWithoutGet => {
            let has_get = over == Http;
            let server = Server::start(name, &options);
            let without = over_http(server.address(), "/mcp", row.tool, has_get);
            let server = Server::start(name, &options);
            let proxy = proxy(&format!("upstream.url = {:?}", server.url()), &keys);
            [without, over_http(proxy.address(), "/a", row.tool, has_get)]
        }
        Sse => {
            let words = [&[&*program][..], &options[..]].concat();
            let plain = proxy(&format!("upstream.command = {words:?}"), "mode = \"observe\"\n");
            let without = over_sse(plain.address(), "/a/sse", row.tool);
            let sse = format!("upstream.sse = \"http://{}/a/sse\"", plain.address());
            let proxy = proxy(&sse, &keys);
            [without, over_sse(proxy.address(), "/a/sse", row.tool)]
        }
    }
}

const HEAD: &str = "# Five legacy systems

Five legacy systems report progress in forms that differ from the specification. This table compares what a client
shows of each system without Milepost and with it. A test makes the table: the servers in [`examples/`](../examples) send
what each system sends, over each transport, to a strict client. This client accepts only its own token, valid members
and events named `message`, and nothing after the answer.

Each cell has the number of updates that the client shows, the first and the last update (`progress/total` and the
message), and what is wrong with the answer. Heartbeats are off. The column *preset* has the `preset` of the route, or
`--preset` of `wrap` ([route-file.md](route-file.md#known-servers)); *defaults* means that no setting is needed. Over
HTTP+SSE the example runs behind a second Milepost, which only changes the transport.
";

const FOOT: &str = "
Today KuzuMem-MCP over HTTP answers with plain JSON and sends nothing before the answer, and scout has reported nothing
since May 2026. For both of them the client gets only heartbeats.
";

/// How often a row is played again if its result differs from the stored one.
const AGAIN: usize = 5;

fn line(system: &str, row: &Row, over: Over, [without, with]: &[Shown; 2]) -> String {
    let transport = match over {
        Pipe => "stdio",
        Http => "Streamable HTTP",
        HttpWithoutGet => "Streamable HTTP, no GET stream",
        Sse => "HTTP+SSE",
    };
    let preset = if row.preset.is_empty() { "defaults" } else { row.preset };
    let (without, with) = (without.cell(), with.cell());
    format!(
        "| {system} {} | {} | {transport} | {without} | {with} | {preset} |\n",
        row.dialect, row.says
    )
}

/// The table. A row whose line is not in `kept` is played again, alone: a busy machine may put together what a server
/// has written apart.
fn page(kept: Option<&str>) -> String {
    let mut page = HEAD.to_owned();
    page += "\n| dialect | the server sends | transport | without Milepost | with Milepost | preset |\n";
    page += "|---|---|---|---|---|---|\n";
    let rows = SYSTEMS.iter().flat_map(|(system, rows)| rows.iter().map(move |row| (system, row)));
    let rows: Vec<_> = rows
        .flat_map(|(system, row)| row.over.iter().map(move |over| (*system, row, *over)))
        .collect();
    example("kuzumem");
    // Several rows are played at once, because a server waits most of the time.
    for some in rows.chunks(10) {
        let played: Vec<[Shown; 2]> = thread::scope(|scope| {
            let threads: Vec<_> =
                some.iter().map(|(_, row, over)| scope.spawn(move || play(row, *over))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for ((system, row, over), first) in some.iter().zip(played) {
            let tries = if kept.is_some() { AGAIN } else { 0 };
            let again = std::iter::repeat_with(|| play(row, *over)).take(tries);
            let mut lines =
                std::iter::once(first).chain(again).map(|played| line(system, row, *over, &played));
            let made = lines.next().unwrap();
            let is_kept = |line: &String| kept.is_some_and(|kept| kept.contains(line));
            page += &if is_kept(&made) { made } else { lines.find(is_kept).unwrap_or(made) };
        }
    }
    page + FOOT + "\n" + &neighbours::section()
}

#[test]
fn the_table_of_legacy_systems_is_what_their_clients_are_shown() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/legacy-systems.md");
    let kept = std::fs::read_to_string(&place).unwrap_or_default();
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    let last = page((!is_update).then_some(&kept));
    if is_update {
        return std::fs::write(&place, last).unwrap();
    }
    if last == kept {
        return;
    }
    let differs = last.lines().filter(|line| !kept.contains(*line)).collect::<Vec<_>>().join("\n");
    panic!("UPDATE_EXPECT=1 writes it anew; these lines differ:\n{differs}");
}
