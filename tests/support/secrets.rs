//! Conversations full of secrets, over every kind of route and with every kind of fault. Collects all text that others
//! than client and server could read.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::fake::{self, Asked};
use super::session::Session;
use super::{FORGETFUL, MILEPOST, until};

/// The beginning of every secret. The rest says where the secret is used.
const MARK: &str = "canary-";

/// All text that others than client and server could read, by where it was found.
pub(crate) struct Told {
    pub(crate) texts: Vec<(&'static str, String)>,
    /// Secrets that were made during the run.
    made: Vec<String>,
}

impl Told {
    /// Panics if some text contains a secret.
    #[track_caller]
    pub(crate) fn expect_no_secrets(&self) {
        for (place, text) in &self.texts {
            assert!(!text.is_empty(), "nothing was said in {place}");
            for line in text.lines() {
                let secret = self.made.iter().any(|made| line.contains(made));
                assert!(!secret && !line.contains(MARK), "a secret in {place}: {line}");
            }
        }
    }
}

/// The script of a child that has a secret among its arguments (`$1`) and another in its environment.
const CHILD: &str = r#"
while read -r line; do
    case "$line" in
        *'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"child","version":"1"}}}' ;;
        *'"work"'*)
            echo '{"jsonrpc":"2.0","method":"tools/progress","params":{"progressToken":"t","progress":1,"total":2,"message":"canary-words"}}'
            echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"other","progress":1,"message":"canary-words"}}'
            echo '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"canary-log"}}'
            echo '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"canary-result"}]}}' ;;
        *'"fails"'*) echo '{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"canary-error"}}' ;;
        *'"dies"'*) exit 3 ;;
    esac
done
"#;

/// The open streams of HTTP+SSE.
type Streams = Mutex<Vec<TcpStream>>;

/// Begins a stream of HTTP+SSE.
fn begin(streams: &Streams, path: &str, stream: &mut TcpStream) {
    let mut streams = streams.lock().unwrap();
    let endpoint = match path {
        "/evil/sse" => "http://evil.example/messages?session_id=canary-foreign".to_owned(),
        _ => format!("/messages?session_id=canary-wire-{}", streams.len()),
    };
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: {endpoint}\n\n"
    );
    streams.push(stream.try_clone().unwrap());
}

/// Writes an event on the stream to which the endpoint in `path` belongs.
fn say_on(streams: &Streams, path: &str, text: &str) {
    let number = path.split("canary-wire-").nth(1).unwrap_or_default();
    let number = number.split('&').next().unwrap().parse::<usize>();
    if let Some(open) = streams.lock().unwrap().get_mut(number.unwrap()) {
        let _ = write!(open, "event: message\ndata: {text}\n\n");
    }
}

/// Answers as the called tool says.
fn answer(streams: &Streams, asked: &Asked, stream: &mut TcpStream) {
    let path = asked.path.split('?').next().unwrap();
    if asked.method == "GET" && path.contains("sse") {
        return begin(streams, path, stream);
    }
    if asked.method != "POST" {
        return fake::say(stream, "405 Method Not Allowed", "", "canary-body");
    }
    let message: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let id = &message["id"];
    let json = "content-type: application/json\r\nset-cookie: id=canary-set-cookie\r\n";
    let result = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let begun = result(
        r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"canary-server","version":"1"}}"#,
    );
    let done = result(r#"{"content":[{"type":"text","text":"canary-result"}]}"#);
    let what = message["params"]["name"].as_str().or_else(|| message["method"].as_str());
    if path == "/messages" {
        fake::say(stream, "202 Accepted", "", "");
        if !id.is_null() {
            let text = if what == Some("initialize") { begun } else { done };
            say_on(streams, &asked.path, &text);
        }
        return;
    }
    match what.unwrap_or_default() {
        "initialize" => {
            let session = format!("{json}mcp-session-id: canary-session\r\n");
            fake::say(stream, "200 OK", &session, &begun);
        }
        "work" => {
            let progress = r#"{"jsonrpc":"2.0","method":"tools/progress","params":{"progressToken":"t","progress":1,"total":2,"message":"canary-words"}}"#;
            let events = format!("id: canary-event-id\ndata: {progress}\n\ndata: {done}\n\n");
            fake::say(stream, "200 OK", "content-type: text/event-stream\r\n", &events);
        }
        "fails" => {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"canary-error"}}}}"#
            );
            fake::say(stream, "200 OK", json, &text);
        }
        "refuses" => fake::say(stream, "500 Oh no", json, "canary-body"),
        "forbids" => {
            let asks = "www-authenticate: Bearer realm=\"canary-realm\"\r\n";
            fake::say(stream, "401 Unauthorized", asks, "canary-body");
        }
        "moved" => {
            let place =
                "location: http://canary-user:canary-password@127.0.0.1:1/x?canary-query\r\n";
            fake::say(stream, "302 Found", place, "canary-body");
        }
        "odd" => fake::say(stream, "200 OK", "content-type: text/html\r\n", "<p>canary-body"),
        "garbled" => fake::say(stream, "200 OK", json, "{canary-body"),
        "cut" => drop(write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{{canary-body"
        )),
        "no-http" => drop(write!(stream, "canary-body\r\n\r\n")),
        _ => fake::say(stream, "202 Accepted", "", ""),
    }
}

const TOOLS: [&str; 9] =
    ["work", "fails", "refuses", "forbids", "moved", "odd", "garbled", "cut", "no-http"];

fn call(tool: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"{tool}","arguments":{{"password":"canary-argument"}},"_meta":{{"progressToken":"t","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","baggage":"user=canary-baggage","note":"canary-meta"}}}}}}"#
    )
}

fn initialize() -> &'static str {
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"experimental":{"key":"canary-capability"}},"clientInfo":{"name":"visitor","version":"1"}}}"#
}

/// Sends a request, and returns the whole answer.
fn ask(address: &str, request: &str, headers: &str, body: &str) -> String {
    let mut stream = open(address, request, headers, body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn open(address: &str, request: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    let accept =
        "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n";
    let host =
        if headers.contains("host: ") { String::new() } else { format!("host: {address}\r\n") };
    let head = format!("{request} HTTP/1.1\r\n{host}{accept}content-length: {length}\r\n");
    stream.write_all(format!("{head}connection: close\r\n{headers}\r\n{body}").as_bytes()).unwrap();
    stream
}

/// Runs all conversations. `variables` are added to the environment, `options` to every command line.
pub(crate) fn visit(variables: &[(&str, &str)], options: &[&str]) -> Told {
    let told = run(variables, options, true);
    assert_eq!(told.made.len(), 3, "{:?}", told.made);
    told
}

/// Runs only the conversations through `wrap`.
pub(crate) fn wrapped(variables: &[(&str, &str)], options: &[&str]) -> Told {
    run(variables, options, false)
}

fn run(variables: &[(&str, &str)], options: &[&str], serves: bool) -> Told {
    let mut told = Told { texts: Vec::new(), made: Vec::new() };
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("child.sh"), CHILD).unwrap();
    let streams = Streams::default();
    let server = fake::listen(move |asked, stream| answer(&streams, asked, stream));
    let mut command = |name: &str, file: &str| {
        let mut command = Command::new("env");
        command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(MILEPOST).arg(name).args(options).args((!file.is_empty()).then_some(file));
        command.env(FORGETFUL.0, FORGETFUL.1).current_dir(folder.path());
        command.env("UP", "canary-up").env("OWN", "canary-own").env("ADMIN", "canary-admin");
        command
    };
    if serves {
        serve(&mut told, folder.path(), &server, &mut command);
    }
    wrap(&mut told, folder.path(), &server, &mut command);
    told
}

/// The headers of every client request.
const HEADERS: &str = "authorization: Bearer canary-own\r\ncookie: id=canary-cookie\r\n\
                       x-api-key: canary-api-key\r\nbaggage: user=canary-baggage\r\n\
                       mcp-protocol-version: 2025-06-18\r\n";

fn routes(server: &str) -> String {
    let with =
        r#"headers.request = { set = { authorization = "Bearer ${UP}", x-key = "canary-key" } }"#;
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
drain = "1s"
bearer = "${{OWN}}"

[admin]
listen = "127.0.0.1:0"
bearer = "${{ADMIN}}"

[[route]]
path = "/http"
upstream.url = "http://{server}/mcp?key=canary-own-query"
{with}

[[route]]
path = "/wire"
upstream.sse = "http://{server}/sse?key=canary-own-query"
{with}

[[route]]
path = "/evil"
upstream.sse = "http://{server}/evil/sse?key=canary-own-query"

[[route]]
path = "/child"
upstream.command = ["sh", "child.sh", "canary-argument-of-child"]
upstream.env = {{ PASSWORD = "canary-environment-${{UP}}" }}

[[route]]
path = "/down"
upstream.url = "http://127.0.0.1:1/mcp?key=canary-own-query"

[[route]]
path = "/lifecycle"
upstream.url = "http://{server}/mcp?key=canary-own-query"
upstream.lifecycle.tools = "/tools?key=canary-own-query"
"#
    )
}

fn serve(
    told: &mut Told,
    folder: &Path,
    server: &str,
    command: &mut impl FnMut(&str, &str) -> Command,
) {
    fs::write(folder.join("back.toml"), routes(server)).unwrap();
    let back = Session::start_as_it_is(&mut command("serve", "back.toml"));
    let address = listening(&back, "listening address=");
    // A chain of two instances, with HTTP/2 between them.
    let chain = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1s\"\n\n[[route]]\npath = \"/http\"\n\
         upstream.url = \"http://{address}/http?key=canary-own-query\"\nupstream.http2 = true\n\
         headers.request = {{ set = {{ authorization = \"Bearer ${{OWN}}\" }} }}\n"
    );
    fs::write(folder.join("front.toml"), chain).unwrap();
    let front = Session::start_as_it_is(&mut command("serve", "front.toml"));
    let near = listening(&front, "listening address=");
    let admin = listening(&back, "listening for operators address=");

    for (address, route) in [
        (&address, "/http"),
        (&near, "/http"),
        (&address, "/child"),
        (&address, "/wire"),
        (&address, "/down"),
        (&address, "/lifecycle"),
    ] {
        over_http(told, address, route);
    }
    for route in ["/wire", "/child", "/evil"] {
        http_sse(told, &address, route, HEADERS);
    }
    refused_all(&address);
    bad_http2(&address);
    ask(&admin, "GET /metrics", "authorization: Bearer canary-wrong\r\n", "");
    ask(
        &admin,
        "PUT /log-level",
        "authorization: Bearer canary-wrong\r\nmilepost-admin: 1\r\n",
        "info",
    );
    let metrics = ask(&admin, "GET /metrics", "authorization: Bearer canary-admin\r\n", "");
    assert!(metrics.contains("milepost_calls_total"), "{metrics}");
    told.texts.push(("/metrics", metrics));
    for (place, serve) in [("the log of serve", back), ("the log of serve with HTTP/2", front)] {
        serve.signal("TERM");
        let (_, _, log) = { serve }.ended();
        told.texts.push((place, log));
    }
}

/// Plays a client of Streamable HTTP.
fn over_http(told: &mut Told, address: &str, route: &str) {
    let post = format!("POST {route}?key=canary-query");
    let begun = ask(address, &post, HEADERS, initialize());
    let session = begun.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = session.map(|session| {
        if !session.starts_with(MARK) {
            told.made.push(session.to_owned());
        }
        format!("mcp-session-id: {session}\r\n")
    });
    let headers = format!("{HEADERS}{}", session.unwrap_or_default());
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    ask(address, &post, &headers, initialized);
    let mut all = TOOLS.to_vec();
    if route == "/child" {
        all = vec!["work", "fails", "dies"];
    } else if route == "/wire" || route == "/down" {
        all = vec!["work"];
    }
    for tool in all {
        ask(address, &post, &headers, &call(tool));
    }
    ask(address, &post, &headers, "{canary-body");
    let list = r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#;
    ask(address, &post, &headers, list);
    ask(address, &format!("DELETE {route}?key=canary-query"), &headers, "");
}

/// Sends requests that are refused everywhere.
fn refused_all(address: &str) {
    let refused = [
        ("POST /http?key=canary-query", "authorization: Bearer canary-wrong\r\n"),
        ("POST /nowhere/canary-path?key=canary-query", HEADERS),
        ("POST /http", "host: canary-user:canary-password@evil.example\r\n"),
        ("POST http://canary-user:canary-password@evil.example/http?canary-query", ""),
        ("POST /http", "origin: http://canary-user:canary-password@evil.example\r\n"),
        ("POST /http", "mcp-session-id: canary-session-1\r\nmcp-session-id: canary-session-2\r\n"),
        ("GET /child", "authorization: Bearer canary-own\r\nmcp-session-id: canary-guess\r\n"),
    ];
    for (request, headers) in refused {
        ask(address, request, headers, &call("work"));
    }
    // Bytes that are not HTTP at all.
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"canary-no-http\r\n\r\n").unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Sends an HTTP/2 request whose path is not valid: the preface, settings, and headers as literals.
fn bad_http2(address: &str) {
    let literal = |name: &str, value: &str| {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        [&[0, name.len() as u8][..], name, &[value.len() as u8], value].concat()
    };
    let headers = [
        literal(":method", "GET"),
        literal(":scheme", "http"),
        literal(":authority", "canary-user:canary-password@127.0.0.1"),
        literal(":path", "/http x?key=canary-query"),
    ];
    let headers = headers.concat();
    let mut text = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0".to_vec();
    text.extend([headers.len() as u8, 1, 5, 0, 0, 0, 1]);
    text.extend(headers);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(&text).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Plays a client of HTTP+SSE.
fn http_sse(told: &mut Told, address: &str, route: &str, headers: &str) {
    let mut stream = open(address, &format!("GET {route}/sse?key=canary-query"), headers, "");
    let mut heard = String::new();
    let mut hear = |heard: &mut String, text: &str| {
        let until = Instant::now() + Duration::from_secs(30);
        let mut piece = [0; 4096];
        while !heard.contains(text) && Instant::now() < until {
            match stream.read(&mut piece) {
                Ok(length @ 1..) => *heard += &String::from_utf8_lossy(&piece[..length]),
                _ => return false,
            }
        }
        heard.contains(text)
    };
    if !hear(&mut heard, "\n\n") || !hear(&mut heard, "data: /") {
        return;
    }
    let place = heard.split("data: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let key = place.rsplit('=').next().unwrap();
    if !key.starts_with(MARK) {
        told.made.push(key.to_owned());
    }
    for (body, answer) in
        [(initialize().to_owned(), "protocolVersion"), (call("work"), "canary-result")]
    {
        ask(address, &format!("POST {place}"), headers, &body);
        assert!(hear(&mut heard, answer), "{heard}");
    }
}

fn listening(session: &Session, words: &str) -> String {
    let mut found = String::new();
    until("it listens", || {
        let log = session.stderr();
        let place = log.split(words).nth(1).filter(|rest| rest.contains('\n'));
        let word = place.and_then(|rest| rest.split_whitespace().next());
        found = word.unwrap_or_default().trim_matches('"').to_owned();
        !found.is_empty()
    });
    found
}

fn wrap(
    told: &mut Told,
    folder: &Path,
    server: &str,
    command: &mut impl FnMut(&str, &str) -> Command,
) {
    let mut child = command("wrap", "");
    child.args(["--", "sh", "child.sh", "canary-argument-of-child"]);
    let mut session = Session::start_as_it_is(child.env("PASSWORD", "canary-environment"));
    session.tell(initialize());
    session.lines_until("protocolVersion");
    session.tell("{canary-body");
    for (tool, answer) in [("work", "canary-result"), ("fails", "canary-error"), ("dies", "error")]
    {
        session.tell(&call(tool));
        session.lines_until(answer);
    }
    told.texts.push(("the log of wrap", session.finish().2));

    fs::write(folder.join("token"), "canary-token").unwrap();
    let mut remote = command("wrap", "");
    remote.args(["--bearer-file", "token", "--header", "x-key: canary-key"]);
    remote.args(["--header-env", "x-other=UP"]);
    let mut session =
        Session::start_as_it_is(remote.arg(format!("http://{server}/mcp?key=canary-own-query")));
    session.tell(initialize());
    session.lines_until("protocolVersion");
    for tool in TOOLS {
        session.tell(&call(tool));
        session.lines_until(r#""id":2"#);
    }
    told.texts.push(("the log of wrap with an address", session.finish().2));

    let mut nobody = command("wrap", "");
    nobody.args(["--bearer-env", "UP", "http://127.0.0.1:1/mcp?key=canary-own-query"]);
    let mut session = Session::start_as_it_is(&mut nobody);
    session.tell(initialize());
    session.lines_until("error");
    told.texts.push(("the log of wrap without a server", session.finish().2));
}
