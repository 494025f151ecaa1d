//! An HTTP client without any library: one request, and the bytes of its answer as they come.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::STUCK;

/// A request that has been sent.
pub(crate) struct Exchange {
    reader: BufReader<TcpStream>,
    head: Option<Head>,
    /// What has been read of the body and not yet taken.
    body: Vec<u8>,
    /// How much of that was looked through for the end of an event.
    searched: usize,
    ended: bool,
}

struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

impl Exchange {
    /// Sends a request to `address` and reads nothing.
    pub(crate) fn send(
        address: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        Self {
            reader: BufReader::new(stream),
            head: None,
            body: Vec::new(),
            searched: 0,
            ended: false,
        }
    }

    /// Whether nothing at all comes for so long.
    pub(crate) fn is_quiet(&self, time: Duration) -> bool {
        if !self.body.is_empty() || !self.reader.buffer().is_empty() {
            return false;
        }
        let stream = self.reader.get_ref();
        stream.set_read_timeout(Some(time)).unwrap();
        stream.peek(&mut [0]).is_err()
    }

    /// Its status.
    #[track_caller]
    pub(crate) fn status(&mut self) -> u16 {
        self.head().status
    }

    /// A header of the answer, or nothing.
    #[track_caller]
    pub(crate) fn header(&mut self, name: &str) -> Option<String> {
        let headers = &self.head().headers;
        headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone())
    }

    /// The next event as it was written, up to the empty line; nothing at the end.
    #[track_caller]
    pub(crate) fn event(&mut self) -> Option<String> {
        self.try_event().unwrap()
    }

    /// The same, from a connection that may break off.
    pub(crate) fn try_event(&mut self) -> io::Result<Option<String>> {
        loop {
            let from = self.searched.saturating_sub(3);
            let new = &self.body[from..];
            let ends = ["\n\n", "\r\n\r\n"].iter().filter_map(|gap| {
                Some(from + memchr::memmem::find(new, gap.as_bytes())? + gap.len())
            });
            if let Some(end) = ends.min() {
                self.searched = 0;
                return Ok(Some(String::from_utf8(self.body.drain(..end).collect()).unwrap()));
            }
            self.searched = self.body.len();
            if !self.try_read()? {
                assert!(self.body.is_empty(), "half an event: {:?}", self.rest());
                return Ok(None);
            }
        }
    }

    /// A handle of its connection, with which that can be cut.
    pub(crate) fn connection(&self) -> TcpStream {
        self.reader.get_ref().try_clone().unwrap()
    }

    /// All the events that come before the end.
    #[track_caller]
    pub(crate) fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// What is left of the body, to its end.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> String {
        while self.read() {}
        String::from_utf8(std::mem::take(&mut self.body)).unwrap()
    }

    #[track_caller]
    fn head(&mut self) -> &Head {
        if self.head.is_none() {
            let status = self.line().split(' ').nth(1).unwrap().parse().unwrap();
            let mut headers = Vec::new();
            loop {
                let line = self.line();
                let Some((name, value)) = line.split_once(": ") else { break };
                headers.push((name.to_ascii_lowercase(), value.to_owned()));
            }
            self.head = Some(Head { status, headers });
        }
        self.head.as_ref().unwrap()
    }

    #[track_caller]
    fn line(&mut self) -> String {
        self.try_line().unwrap()
    }

    fn try_line(&mut self) -> io::Result<String> {
        self.reader.get_ref().set_read_timeout(Some(STUCK))?;
        let mut line = String::new();
        match self.reader.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    #[track_caller]
    fn read(&mut self) -> bool {
        self.try_read().unwrap()
    }

    /// Reads a chunk, or all of a body that has a length. Nothing: it has ended.
    fn try_read(&mut self) -> io::Result<bool> {
        let length = self.header("content-length");
        if self.ended {
            return Ok(false);
        }
        let length = match &length {
            Some(length) => length.parse().unwrap(),
            None => usize::from_str_radix(&self.try_line()?, 16).unwrap(),
        };
        let mut piece = vec![0; length];
        self.reader.read_exact(&mut piece)?;
        self.body.extend(piece);
        let chunked = self.header("transfer-encoding").is_some();
        self.ended = !chunked || length == 0;
        if chunked {
            self.try_line()?;
        }
        Ok(length > 0)
    }
}
