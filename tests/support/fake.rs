//! HTTP servers whose answers a test writes byte by byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// A request that such a server has received.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The header lines, in lower case before the colon.
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    /// Returns a header of the request, if it has one.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&String| line.starts_with(&format!("{name}: "));
        self.headers.iter().find(named).map(|line| &line[name.len() + 2..])
    }
}

/// Listens on a separate port until the test process ends. For each request, `answer` writes anything; afterwards the
/// connection is closed, unless `answer` has kept a handle of it. Returns host and port.
pub(crate) fn listen(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = std::sync::Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = std::sync::Arc::clone(&answer);
            thread::spawn(move || {
                let mut stream = stream;
                if let Some(asked) = read(&stream) {
                    answer(&asked, &mut stream);
                }
            });
        }
    });
    address
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        Some(line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.push(format!("{}: {value}", name.to_ascii_lowercase()));
    }
    let mut asked = Asked { method, path, headers, body: Vec::new() };
    if let Some(length) = asked.header("content-length") {
        asked.body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut asked.body).ok()?;
    } else if asked.header("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let mut piece = vec![0; usize::from_str_radix(size.trim(), 16).ok()? + 2];
            reader.read_exact(&mut piece).ok()?;
            if piece.len() == 2 {
                break;
            }
            asked.body.extend_from_slice(&piece[..piece.len() - 2]);
        }
    }
    Some(asked)
}

/// Writes a whole response. `headers` are lines with their line endings.
pub(crate) fn say(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
    );
}
