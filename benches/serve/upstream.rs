//! The MCP server behind every proxy. Its messages are prepared before they are requested, so that a load run does not
//! wait for the server.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::net::{TcpListener, TcpStream};

use crate::http::Wire;

/// Number of bytes of text in a big answer.
pub(crate) const BIG: usize = 10 << 20;

/// An event counts as late if it has waited in the server for this time, because it could not be written.
const LATE: Duration = Duration::from_millis(5);

/// The digits of a value that rises without becoming longer.
const FIGURE: &str = "########";
/// The digits of a time, in nanoseconds since [`epoch`].
const STAMP: &str = "@@@@@@@@@@@@@@";

const EVENT_STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
    Cache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Returns the start of all times in events.
pub(crate) fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Starts the server on a separate thread. Returns its address.
pub(crate) fn start() -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(accept(listener))
    });
    Ok(address)
}

async fn accept(listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // Ignore the error: a proxy may disconnect in the middle of a stream.
        tokio::spawn(connection(stream));
    }
}

async fn connection(stream: TcpStream) -> io::Result<()> {
    let mut wire = Wire::new(stream)?;
    while let Some(mut head) = wire.head().await? {
        let mut body = Vec::new();
        while !wire.body(&mut head.body, &mut body).await? {}
        if !head.start().starts_with("POST ") {
            wire.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n").await?;
            continue;
        }
        answer(&mut wire, &String::from_utf8_lossy(&body)).await?;
    }
    Ok(())
}

async fn answer(wire: &mut Wire, request: &str) -> io::Result<()> {
    let field = |name: &str| {
        let (_, after) = request.split_once(&format!("\"{name}\":"))?;
        Some(after.split([',', '}']).next()?.trim_matches('"'))
    };
    let number = |name| field(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let Some(id) = field("id") else {
        return wire.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await;
    };
    if field("method") == Some("initialize") {
        let session = format!("Mcp-Session-Id: session-{id}\r\n");
        return json(wire, &session, agreement(id).as_bytes()).await;
    }
    let told = Told::new(
        field("form").unwrap_or_default(),
        field("progressToken").unwrap_or_default(),
        number("count"),
    );
    match field("name") {
        Some("big") => json(wire, "", big_answer(id).as_bytes()).await,
        Some("big-sse") => {
            wire.write(EVENT_STREAM.as_bytes()).await?;
            last_event(wire, &big_answer(id)).await
        }
        Some("flood") => flood(wire, &told, number("in_chunk"), number("in_write"), id).await,
        Some("timed") => timed(wire, &told, number("in_write"), number("rate"), id).await,
        Some("silent") => {
            wire.write(EVENT_STREAM.as_bytes()).await?;
            wire.closed().await
        }
        _ => json(wire, "", small_answer(id).as_bytes()).await,
    }
}

async fn json(wire: &mut Wire, header: &str, message: &[u8]) -> io::Result<()> {
    let mut all = Vec::with_capacity(message.len() + 200);
    let length = message.len();
    write!(
        all,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{header}Content-Length: {length}\r\n\r\n"
    )?;
    all.extend_from_slice(message);
    wire.write(&all).await
}

/// Returns the answer to `initialize`.
pub(crate) fn agreement(id: &str) -> String {
    let result = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

pub(crate) fn small_answer(id: &str) -> String {
    let text = "The index of the folder is complete: 1,204 documents in 38 folders.";
    format!(
        r#"{{"result":{{"content":[{{"type":"text","text":"{text}"}}]}},"jsonrpc":"2.0","id":{id}}}"#
    )
}

pub(crate) fn big_answer(id: &str) -> String {
    static TEXT: OnceLock<String> = OnceLock::new();
    let line = "a line of text that ends here and is of usual length\\n";
    let text = TEXT.get_or_init(|| line.repeat(BIG / line.len()));
    format!(
        r#"{{"result":{{"content":[{{"type":"text","text":"{text}"}}]}},"jsonrpc":"2.0","id":{id}}}"#
    )
}

/// Writes the answer as the last event of a stream, in chunks of 64 KiB.
async fn last_event(wire: &mut Wire, answer: &str) -> io::Result<()> {
    let event = format!("event: message\ndata: {answer}\n\n");
    let mut all = Vec::with_capacity(event.len() + 1000);
    for piece in event.as_bytes().chunks(64 << 10) {
        chunk(&mut all, piece)?;
    }
    all.extend_from_slice(b"0\r\n\r\n");
    wire.write(&all).await
}

fn chunk(into: &mut Vec<u8>, data: &[u8]) -> io::Result<()> {
    write!(into, "{:x}\r\n", data.len())?;
    into.extend_from_slice(data);
    into.extend_from_slice(b"\r\n");
    Ok(())
}

/// The notifications of one stream.
struct Told {
    templates: Vec<Template>,
    count: u64,
}

/// An event with gaps for value and time.
struct Template {
    bytes: Vec<u8>,
    figures: Vec<usize>,
    stamps: Vec<usize>,
}

impl Told {
    /// `form` is the kind of the notifications: correct progress (`own`), progress that must be repaired (`wrong`:
    /// every second has an invented token, the others have no value), or log messages.
    fn new(form: &str, token: &str, count: u64) -> Self {
        let params: &[String] = &match form {
            "own" => vec![format!(
                r#""progressToken":"{token}","progress":{FIGURE},"total":99999999,"message":"{STAMP} indexed {FIGURE} documents so far""#
            )],
            "wrong" => vec![
                format!(
                    r#""progressToken":"elsewhere","progress":{FIGURE},"total":99999999,"message":"{STAMP} indexed {FIGURE} documents so far""#
                ),
                format!(
                    r#""progressToken":"{token}","message":"{STAMP} indexed {FIGURE} documents so far, and more are waiting""#
                ),
            ],
            _ => vec![format!(
                r#""level":"info","logger":"index","data":"{STAMP} indexed {FIGURE} documents so far, and more are waiting""#
            )],
        };
        let method = if form == "log" { "message" } else { "progress" };
        let event = |params: &String| {
            Template::new(&format!(
                "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{method}\",\"params\":{{{params}}}}}\n\n"
            ))
        };
        Self { templates: params.iter().map(event).collect(), count }
    }

    /// Appends the notification `number`, with `at` as the time of its sending.
    fn append(&self, number: u64, at: Duration, into: &mut Vec<u8>) {
        let kinds = self.templates.len() as u64;
        let Some(template) = self.templates.get((number % kinds) as usize) else { return };
        let start = into.len();
        into.extend_from_slice(&template.bytes);
        let event = &mut into[start..];
        for place in &template.figures {
            digits(&mut event[*place..][..FIGURE.len()], 10_000_000 + number);
        }
        for place in &template.stamps {
            digits(&mut event[*place..][..STAMP.len()], at.as_nanos() as u64);
        }
    }
}

impl Template {
    fn new(text: &str) -> Self {
        let places = |gap: &str| memmem::find_iter(text.as_bytes(), gap).collect();
        Self { figures: places(FIGURE), stamps: places(STAMP), bytes: text.into() }
    }
}

fn digits(into: &mut [u8], mut number: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Sends events as fast as they are read: `in_write` events in a write, `in_chunk` of them in one HTTP chunk.
async fn flood(
    wire: &mut Wire,
    told: &Told,
    in_chunk: u64,
    in_write: u64,
    id: &str,
) -> io::Result<()> {
    wire.write(EVENT_STREAM.as_bytes()).await?;
    let (mut piece, mut all) = (Vec::new(), Vec::new());
    let mut next = 0;
    while next < told.count {
        let now = epoch().elapsed();
        let end = told.count.min(next + in_write);
        all.clear();
        while next < end {
            piece.clear();
            let last = end.min(next + in_chunk);
            for number in next..last {
                told.append(number, now, &mut piece);
            }
            chunk(&mut all, &piece)?;
            next = last;
        }
        wire.write(&all).await?;
    }
    last_event(wire, &small_answer(id)).await
}

/// Sends a chunk of `in_write` events `rate` times a second, whether or not it can be written.
async fn timed(wire: &mut Wire, told: &Told, in_write: u64, rate: u64, id: &str) -> io::Result<()> {
    wire.write(EVENT_STREAM.as_bytes()).await?;
    let period = Duration::from_nanos(1_000_000_000 / rate.max(1));
    let mut due = epoch().elapsed();
    let (mut piece, mut all) = (Vec::new(), Vec::new());
    let mut next = 0;
    while next < told.count {
        if let Some(left) = due.checked_sub(epoch().elapsed()) {
            tokio::time::sleep(left).await;
        }
        let now = epoch().elapsed();
        let sent = if now > due + LATE { due } else { now };
        piece.clear();
        all.clear();
        for number in next..next + in_write {
            told.append(number, sent, &mut piece);
        }
        chunk(&mut all, &piece)?;
        wire.write(&all).await?;
        next += in_write;
        due += period;
    }
    last_event(wire, &small_answer(id)).await
}
