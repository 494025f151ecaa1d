//! Bad bytes on the sockets of `milepost serve`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::{Row, bytes, compare, one_line, rows};
use crate::http::serve::proxy::{Proxy, Start};
use crate::support::{STUCK, until};

/// A stdio server that answers every request, and `initialize` as the specification says.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    try:
        said = json.loads(line)
    except ValueError:
        continue
    if not isinstance(said, dict) or "id" not in said or "method" not in said:
        continue
    version = (said.get("params") or {}).get("protocolVersion") if isinstance(said.get("params"), dict) else None
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result if version else {}}), flush=True)
"#;

/// Rows that are played at once.
const AT_ONCE: usize = 8;

fn serve() -> Proxy {
    let command = serde_json::to_string(&["python3", "-c", SERVER]).unwrap();
    let routes = format!(
        "[[route]]\npath = \"/child\"\nupstream.command = {command}\nupstream.idle_timeout = \"1s\"\n\
         [[route]]\npath = \"/demo\"\nupstream.demo = true\n\
         [[route]]\npath = \"/small\"\nupstream.demo = true\nmax_request_bytes = 100\n\
         [[route]]\npath = \"/dead\"\nupstream.url = \"http://127.0.0.1:1/mcp\"\n\
         [[route]]\npath = \"/cors\"\nupstream.demo = true\ncors = {{ origins = [\"https://app.example\"] }}\n"
    );
    let start = Start { server: "max_header_bytes = 8192", ..Start::default() };
    Proxy::serving(&start, &routes)
}

/// The bytes of a request: `{H}` stands for a Host, `{J}` for the headers of a POST, and `{B}` begins
/// the body, with its length before it. A row that ends with `...` closes its side then.
fn request(row: &Row, address: &str) -> (Vec<u8>, bool) {
    let written =
        row.written.replace("{H}", &format!(r"host: {address}\r\n")).replace("{A}", address);
    let written = written.replace(
        "{J}",
        r"content-type: application/json\r\naccept: application/json, text/event-stream\r\n",
    );
    let closes = written.ends_with("...");
    let written = written.trim_end_matches("...");
    match written.split_once("{B}") {
        None => (bytes(written), closes),
        Some((head, body)) => {
            let body = bytes(body);
            let length = format!("content-length: {}\r\n\r\n", body.len());
            ([bytes(head), length.into_bytes(), body].concat(), closes)
        }
    }
}

/// Returns the response to these bytes, as far as it matters for the row.
fn exchange(address: &str, sent: &[u8], closes: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(STUCK)).unwrap();
    stream.set_write_timeout(Some(STUCK)).unwrap();
    // Ignore the error: the connection may have been closed meanwhile.
    let _ = stream.write_all(sent);
    if closes {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let (mut heard, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while !is_whole(&heard) {
        match stream.read(&mut buffer) {
            Ok(read @ 1..) => heard.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                heard.extend_from_slice(b"\n(waits)");
                break;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    heard
}

/// Whether enough of an answer over HTTP/1 has come.
fn is_whole(heard: &[u8]) -> bool {
    let text = String::from_utf8_lossy(heard);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => body.len() >= length,
        // A piece of an event, or the last chunk.
        None => head.contains(" 204 ") || body.contains("\n\n") || body.ends_with("0\r\n\r\n"),
    }
}

/// An answer in a few words: the status, and why.
fn summary(heard: &[u8]) -> String {
    if heard.starts_with(&[0, 0]) {
        return frames(heard);
    }
    let text = String::from_utf8_lossy(heard).into_owned();
    let Some(rest) = text.strip_prefix("HTTP/1.1 ").or_else(|| text.strip_prefix("HTTP/1.0 "))
    else {
        return match &*text {
            "" => "closed".to_owned(),
            text => one_line(text.trim_start()),
        };
    };
    let status = rest.get(..3).unwrap_or(rest);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let json = body.find('{').and_then(|at| {
        serde_json::Deserializer::from_str(&body[at..]).into_iter::<Value>().next()?.ok()
    });
    let why = match json {
        Some(json) if json["error"]["data"]["reason"].is_string() => {
            json["error"]["data"]["reason"].as_str().unwrap_or_default().to_owned()
        }
        Some(json) if json["error"].is_object() => {
            let message = json["error"]["message"].as_str().unwrap_or_default().to_owned();
            format!("{} {message}", json["error"]["code"])
        }
        Some(json) if json.get("result").is_some() => "result".to_owned(),
        Some(json) => json.to_string(),
        None => body.lines().next().unwrap_or_default().trim_start_matches("milepost: ").to_owned(),
    };
    one_line(format!("{status} {why}").trim_end())
}

/// The frames of HTTP/2 that end a connection or a stream.
fn frames(mut heard: &[u8]) -> String {
    let mut said = Vec::new();
    while heard.len() >= 9 {
        let length =
            usize::from(heard[0]) << 16 | usize::from(heard[1]) << 8 | usize::from(heard[2]);
        let end = (9 + length).min(heard.len());
        let payload = &heard[9..end];
        let last = |from: usize| payload.get(from + 3).copied().unwrap_or_default();
        match heard[3] {
            1 => said.push("headers".to_owned()),
            3 => said.push(format!("reset {}", last(0))),
            7 => said.push(format!("goaway {}", last(4))),
            _ => {}
        }
        heard = &heard[end..];
    }
    said.dedup();
    if said.is_empty() { "settings".to_owned() } else { said.join(", ") }
}

/// Plays the rows of a table, some at once.
fn play(rows: &[Row], answer: impl Fn(&Row) -> String + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![String::new(); rows.len()]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((at, row)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    rows.get(at).map(|row| (at, row))
                } {
                    let said = answer(row);
                    answers.lock().unwrap()[at] = said;
                }
            });
        }
    });
    answers.into_inner().unwrap()
}

/// Plays a table against one process, and checks that nothing is left of it.
#[track_caller]
fn play_and_look(table: &str) {
    let proxy = serve();
    // Memory that a first request allocates permanently is already allocated.
    let hello = "POST /demo HTTP/1.1\r\nhost: a\r\n\r\n";
    exchange(proxy.address(), hello.as_bytes(), false);
    let (descriptors, memory) = (proxy.descriptors(), proxy.status("VmRSS"));
    let rows = rows(table);
    let address = proxy.address().to_owned();
    let answers = play(&rows, |row| {
        let (sent, closes) = request(row, &address);
        summary(&exchange(&address, &sent, closes)).replace(&address, "{A}")
    });
    until("every child is gone", || proxy.servers() <= 1);
    until("every connection is closed", || proxy.descriptors() <= descriptors + 8);
    let grown = proxy.status("VmRSS").saturating_sub(memory);
    assert!(grown < 64 << 10, "{grown} KiB more than before");
    let log = proxy.log();
    for bad in ["panic", "fault of ours", "reason=\"fault\"", "ERROR"] {
        assert!(!log.contains(bad), "{log}");
    }
    // The proxy still serves.
    let hello = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", proxy.admin());
    assert_eq!(summary(&exchange(proxy.admin(), hello.as_bytes(), false)).get(..3), Some("200"));
    compare(table, &answers);
}

#[test]
fn http_heads() {
    play_and_look("http");
}

#[test]
fn http_bodies() {
    play_and_look("bodies");
}

/// Returns the TLS alert, or an empty text.
fn alert(heard: &[u8]) -> String {
    match heard {
        [21, 3, _, 0, 2, level, what, ..] => format!("alert {level} {what}"),
        [22, ..] => "handshake".to_owned(),
        [] => "closed".to_owned(),
        heard if heard.ends_with(b"(waits)") => "waits".to_owned(),
        heard => one_line(&String::from_utf8_lossy(heard)),
    }
}

#[test]
fn tls_records() {
    let folder = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(place("certificate.pem"), own.cert.pem()).unwrap();
    std::fs::write(place("key.pem"), own.signing_key.serialize_pem()).unwrap();
    let name = |path: &Path| path.display().to_string();
    let tls = format!(
        "tls = {{ certificate = {:?}, key = {:?} }}",
        name(&place("certificate.pem")),
        name(&place("key.pem"))
    );
    let start = Start { server: &tls, ..Start::default() };
    let proxy = Proxy::with(&start, "upstream.demo = true");
    let descriptors = proxy.descriptors();
    let rows = rows("tls");
    let address = proxy.address().to_owned();
    let answers = play(&rows, |row| {
        let (sent, closes) = request(row, &address);
        alert(&exchange(&address, &sent, closes))
    });
    until("every connection is closed", || proxy.descriptors() <= descriptors + 8);
    assert!(!proxy.log().contains("panic"), "{}", proxy.log());
    compare("tls", &answers);
}
