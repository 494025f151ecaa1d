//! An HTTP client without a library: one request, and the bytes of its answer as they come.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use socket2::SockRef;

use super::STUCK;

/// A request that has been sent.
pub(crate) struct Exchange {
    reader: BufReader<TcpStream>,
    head: Option<Head>,
    /// The bytes of the body that were read and not taken yet.
    body: Vec<u8>,
    /// The number of bytes of `body` that were already searched for the end of an event.
    searched: usize,
    ended: bool,
}

struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

impl Exchange {
    /// Sends a request to `address`, without reading.
    pub(crate) fn send(
        address: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        Self::write(address, method, path, headers, body, usize::MAX)
    }

    /// Sends a request to `address` in separate writes of one byte.
    pub(crate) fn send_slowly(
        address: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        Self::write(address, method, path, headers, body, 1)
    }

    fn write(
        address: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
        piece: usize,
    ) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        for piece in request.as_bytes().chunks(piece) {
            stream.write_all(piece).unwrap();
        }
        Self {
            reader: BufReader::new(stream),
            head: None,
            body: Vec::new(),
            searched: 0,
            ended: false,
        }
    }

    /// Whether nothing at all arrives for `time`.
    pub(crate) fn is_quiet(&self, time: Duration) -> bool {
        if !self.body.is_empty() || !self.reader.buffer().is_empty() {
            return false;
        }
        let stream = self.reader.get_ref();
        stream.set_read_timeout(Some(time)).unwrap();
        stream.peek(&mut [0]).is_err()
    }

    /// Returns the status of the answer.
    #[track_caller]
    pub(crate) fn status(&mut self) -> u16 {
        self.head().status
    }

    /// Returns a header of the answer, if it has one.
    #[track_caller]
    pub(crate) fn header(&mut self, name: &str) -> Option<String> {
        let headers = &self.head().headers;
        headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone())
    }

    /// Returns the next event as it was written, up to the empty line; `None` at the end.
    #[track_caller]
    pub(crate) fn event(&mut self) -> Option<String> {
        self.try_event().unwrap()
    }

    /// As [`Self::event`], for a connection that may break off.
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

    /// Returns a handle of the connection, for cutting it.
    pub(crate) fn connection(&self) -> TcpStream {
        self.reader.get_ref().try_clone().unwrap()
    }

    /// Returns all events up to the end.
    #[track_caller]
    pub(crate) fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// Returns the rest of the body, up to its end.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> String {
        self.try_rest().unwrap()
    }

    /// As [`Self::header`], for an answer that may not come.
    pub(crate) fn try_header(&mut self, name: &str) -> io::Result<Option<String>> {
        self.try_head()?;
        Ok(self.header(name))
    }

    /// As [`Self::rest`], for a connection that may break off.
    pub(crate) fn try_rest(&mut self) -> io::Result<String> {
        while self.try_read()? {}
        Ok(String::from_utf8(std::mem::take(&mut self.body)).unwrap())
    }

    #[track_caller]
    fn head(&mut self) -> &Head {
        self.try_head().unwrap()
    }

    fn try_head(&mut self) -> io::Result<&Head> {
        if self.head.is_none() {
            let status = self.try_line()?.split(' ').nth(1).unwrap().parse().unwrap();
            let mut headers = Vec::new();
            loop {
                let line = self.try_line()?;
                let Some((name, value)) = line.split_once(": ") else { break };
                headers.push((name.to_ascii_lowercase(), value.to_owned()));
            }
            self.head = Some(Head { status, headers });
        }
        Ok(self.head.as_ref().unwrap())
    }

    fn try_line(&mut self) -> io::Result<String> {
        self.reader.get_ref().set_read_timeout(Some(STUCK))?;
        let mut line = String::new();
        match self.reader.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Reads a chunk, or the whole of a body that has a length. Returns false at the end.
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
        self.reader.get_ref().set_read_timeout(Some(STUCK))?;
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

/// Resets a connection as soon as its reader releases it, so that the other side notices immediately.
pub(crate) fn reset(connection: &TcpStream) {
    let _ = SockRef::from(connection).set_linger(Some(Duration::ZERO));
    let _ = connection.shutdown(Shutdown::Read);
}
