//! HTTP/1.1 and server-sent events read by hand: the tests examine the bytes, independently of the code under test.

/// A request or a response, as far as it has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spoken {
    /// Its first line.
    pub(crate) start: String,
    /// `name: value`, names in lower case, in the order in which they came.
    pub(crate) headers: Vec<String>,
    /// Without the marks of chunks.
    pub(crate) body: Vec<u8>,
    /// Whether the message is complete, in the way that its head announced.
    pub(crate) over: bool,
}

impl Spoken {
    /// The values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let named = |line: &&String| line.split_once(": ").is_some_and(|(found, _)| found == name);
        let value = |line: &'_ String| line.len().min(name.len() + 2);
        self.headers.iter().filter(named).map(|line| &line[value(line)..]).collect()
    }

    /// The only value of a header.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} twice: {all:?}");
        all.first().copied()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The status of a response.
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

/// Reads as much of a message as has arrived; `None` while its head is incomplete. `closed`: whether the connection is
/// closed.
pub(crate) fn read(bytes: &[u8], closed: bool) -> Option<Spoken> {
    let head = memchr::memmem::find(bytes, b"\r\n\r\n")?;
    let text = String::from_utf8_lossy(&bytes[..head]);
    let mut lines = text.split("\r\n");
    let start = lines.next().unwrap_or_default().to_owned();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("header {line:?}"));
        format!("{}: {}", name.to_ascii_lowercase(), value.trim())
    });
    let mut spoken = Spoken { start, headers: headers.collect(), ..Spoken::default() };
    let rest = &bytes[head + 4..];
    let length = spoken.header("content-length").map(|length| length.parse::<usize>().unwrap());
    if spoken.header("transfer-encoding") == Some("chunked") {
        assert!(length.is_none(), "a length and chunks: {:?}", spoken.headers);
        (spoken.body, spoken.over) = chunks(rest);
    } else if let Some(length) = length {
        spoken.body = rest[..rest.len().min(length)].to_vec();
        spoken.over = rest.len() >= length;
    } else if spoken.start.starts_with("HTTP/") {
        let bare = ["204", "304"].iter().any(|status| spoken.start.contains(status));
        spoken.body = rest.to_vec();
        spoken.over = closed || bare;
    } else {
        spoken.over = true;
    }
    Some(spoken)
}

fn chunks(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = memchr::memmem::find(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("chunk {size:?}"));
        let data = &rest[end + 2..];
        if size == 0 {
            return (body, true);
        }
        body.extend_from_slice(&data[..size.min(data.len())]);
        if data.len() < size + 2 {
            break;
        }
        rest = &data[size + 2..];
    }
    (body, false)
}

/// One block of an event stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its bytes, the blank line included.
    pub(crate) raw: Vec<u8>,
    /// Where in the stream it ends.
    pub(crate) end: usize,
    pub(crate) name: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) data: Option<Vec<u8>>,
}

impl Block {
    /// Whether a client takes it for a message.
    pub(crate) fn is_message(&self) -> bool {
        let named = self.name.as_deref().is_none_or(|name| name.is_empty() || name == "message");
        named && self.data.as_ref().is_some_and(|data| !data.is_empty())
    }
}

/// The blocks that are over.
pub(crate) fn blocks(body: &[u8]) -> Vec<Block> {
    let mut found = Vec::new();
    let (mut begin, mut at) = (0, 0);
    let mut block = Block { raw: Vec::new(), end: 0, name: None, id: None, data: None };
    while let Some(length) = memchr::memchr2(b'\n', b'\r', &body[at..]) {
        let line = &body[at..at + length];
        at += length + 1;
        if body[at - 1] == b'\r' && body.get(at) == Some(&b'\n') {
            at += 1;
        }
        if line.is_empty() {
            let empty = Block { raw: Vec::new(), end: 0, name: None, id: None, data: None };
            let block = std::mem::replace(&mut block, empty);
            found.push(Block { raw: body[begin..at].to_vec(), end: at, ..block });
            begin = at;
            continue;
        }
        let line =
            if begin == 0 { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) } else { line };
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match &line[..colon] {
            b"data" => match &mut block.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => block.data = Some(value.to_vec()),
            },
            b"event" => block.name = Some(text()),
            b"id" if !value.contains(&0) => block.id = Some(text()),
            _ => {}
        }
    }
    found
}
