//! The necessary minimum of HTTP/1.1 for both ends of a load run, because these must cost little.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use memchr::{memchr, memmem};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum number of bytes of one read.
const READ: usize = 64 << 10;

/// One connection.
pub(crate) struct Wire {
    stream: TcpStream,
    unread: BytesMut,
}

/// The head of a request or response, with the form of its body.
pub(crate) struct Head {
    text: String,
    pub(crate) body: Body,
}

/// What remains of a body.
pub(crate) enum Body {
    /// This number of bytes.
    Sized(usize),
    /// Chunks; the line with a chunk's size is next.
    Size,
    /// This number of bytes of a chunk, and further chunks.
    Chunk(usize),
    /// The line ending after a chunk, and further chunks.
    ChunkEnd,
    /// The empty line after the last chunk.
    Last,
    /// Nothing.
    Done,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, unread: BytesMut::new() })
    }

    /// Writes all bytes, with one system call if the peer keeps up.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads up to `most` bytes. Returns how many were read.
    async fn read(&mut self, most: usize) -> io::Result<usize> {
        self.unread.reserve(most);
        self.stream.read_buf(&mut (&mut self.unread).limit(most)).await
    }

    /// Reads the head of the next message; returns `None` if the connection ends before it.
    pub(crate) async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = memmem::find(&self.unread, b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&self.unread.split_to(end + 4)).into_owned();
                return Ok(Some(Head::new(text)));
            }
            if self.read(READ).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Appends the next available part of a body to `into`. Returns whether the body is complete.
    pub(crate) async fn body(&mut self, body: &mut Body, into: &mut Vec<u8>) -> io::Result<bool> {
        self.some_of(body, into, READ).await
    }

    /// As [`Self::body`], but reads at most `most` bytes.
    pub(crate) async fn some_of(
        &mut self,
        body: &mut Body,
        into: &mut Vec<u8>,
        most: usize,
    ) -> io::Result<bool> {
        let before = into.len();
        if body.decode(&mut self.unread, into)? {
            return Ok(true);
        }
        if into.len() > before {
            return Ok(false);
        }
        if self.read(most).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        body.decode(&mut self.unread, into)
    }

    /// Waits until the peer closes the connection.
    pub(crate) async fn closed(&mut self) -> io::Result<()> {
        while self.read(READ).await? > 0 {
            self.unread.clear();
        }
        Ok(())
    }
}

impl Head {
    fn new(text: String) -> Self {
        let mut head = Self { text, body: Body::Done };
        if head.value("transfer-encoding") == Some("chunked") {
            head.body = Body::Size;
        } else if let Some(length) = head.value("content-length") {
            head.body = Body::Sized(length.parse().unwrap_or(0));
        }
        head
    }

    /// Returns the first line.
    pub(crate) fn start(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Returns the value of a header.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut fields = self.text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Body {
    /// Moves the available bytes of the body to `into`. Returns whether the body is complete.
    fn decode(&mut self, from: &mut BytesMut, into: &mut Vec<u8>) -> io::Result<bool> {
        loop {
            match self {
                Self::Done | Self::Sized(0) => return Ok(true),
                Self::Chunk(0) => *self = Self::ChunkEnd,
                _ if from.is_empty() => return Ok(false),
                Self::Sized(left) | Self::Chunk(left) => {
                    let some = from.len().min(*left);
                    into.extend_from_slice(&from[..some]);
                    from.advance(some);
                    *left -= some;
                }
                Self::Size | Self::ChunkEnd | Self::Last => {
                    let Some(end) = memchr(b'\n', from) else { return Ok(false) };
                    let next = self.after(from[..end].trim_ascii())?;
                    *self = next;
                    from.advance(end + 1);
                }
            }
        }
    }

    /// Returns what follows after a line between chunks.
    fn after(&self, line: &[u8]) -> io::Result<Self> {
        match self {
            Self::Size => {
                let size = std::str::from_utf8(line).ok();
                let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
                match size.ok_or(io::ErrorKind::InvalidData)? {
                    0 => Ok(Self::Last),
                    size => Ok(Self::Chunk(size)),
                }
            }
            Self::ChunkEnd if line.is_empty() => Ok(Self::Size),
            Self::Last if line.is_empty() => Ok(Self::Done),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
