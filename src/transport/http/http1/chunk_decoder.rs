//! The chunked coding of bodies (RFC 9112, 7.1), decoded in place.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::malformed::{HEADERS_MAX, MalformedResponse};

/// Limit of the digits of a chunk's size. Further digits would only be leading zeros, or a size beyond 64 bits.
const SIZE_DIGITS_MAX: u32 = 16;

/// Limit of the bytes of all chunk extensions in one body, with the spaces before them.
const EXTENSION_BYTES_MAX: usize = 16 << 10;

/// Limit of the bytes of a body's trailers.
const TRAILER_BYTES_MAX: usize = 16 << 10;

/// The position of the next byte in the coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChunkState {
    /// Before the size of a chunk.
    #[default]
    Start,
    /// After a digit of the size.
    Size,
    /// After a space that follows the size.
    Space,
    Extension,
    /// Before the line feed that ends the size.
    SizeLf,
    Data,
    /// Before the carriage return after the data.
    DataCr,
    DataLf,
    /// After the last chunk or a trailer: at the beginning of a line.
    LineStart,
    Trailer,
    TrailerLf,
    /// Before the line feed that ends the body.
    LastLf,
    Over,
}

/// Reads one chunked body.
#[derive(Debug, Default)]
pub(super) struct ChunkDecoder {
    state: ChunkState,
    /// Bytes of data in the current chunk.
    size: u64,
    /// Bytes of the current chunk that are still to come.
    left: u64,
    digits: u32,
    extension_bytes: usize,
    trailers: Vec<u8>,
    trailer_lines: usize,
}

/// The result of decoding some bytes.
pub(super) struct Decoded {
    /// Number of bytes of data, which are now at the front.
    pub(super) data: usize,
    /// Number of bytes that belong to the body: all, unless the body has ended.
    pub(super) used: usize,
    /// Why the next byte cannot be read.
    pub(super) fault: Option<MalformedResponse>,
}

impl ChunkDecoder {
    pub(super) fn is_over(&self) -> bool {
        self.state == ChunkState::Over
    }

    pub(super) fn is_within_data(&self) -> bool {
        self.state == ChunkState::Data
    }

    /// Returns the size of the chunk whose data is being read; 0 otherwise.
    pub(super) fn size(&self) -> u64 {
        if self.is_within_data() { self.size } else { 0 }
    }

    /// Moves the data of all chunks in `bytes` to the front.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> Decoded {
        let (mut data, mut used) = (0, 0);
        let mut fault = None;
        while used < bytes.len() && fault.is_none() && !self.is_over() {
            if self.state == ChunkState::Data {
                let rest = bytes.len() - used;
                let count = usize::try_from(self.left).map_or(rest, |left| left.min(rest));
                // All data of one read is moved together, so that it is passed on as one piece.
                bytes.copy_within(used..used + count, data);
                self.left -= count as u64;
                if self.left == 0 {
                    self.state = ChunkState::DataCr;
                }
                data += count;
                used += count;
                continue;
            }
            match self.next(bytes[used]) {
                Ok(state) => {
                    self.state = state;
                    used += 1;
                }
                Err(malformed) => fault = Some(malformed),
            }
        }
        Decoded { data, used, fault }
    }

    /// Returns the state after a byte that is not data.
    fn next(&mut self, byte: u8) -> Result<ChunkState, MalformedResponse> {
        use ChunkState::{
            Data, DataCr, DataLf, Extension, LastLf, LineStart, Over, Size, SizeLf, Space, Start,
            Trailer, TrailerLf,
        };
        Ok(match (self.state, byte) {
            (Start | Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.add_digit(byte)?;
                Size
            }
            // RFC 9112, 7.1.1 allows a space before an extension; it counts as part of the extension.
            (Size | Space, b' ' | b'\t') => {
                self.count_extension()?;
                Space
            }
            (Size | Space, b';') => Extension,
            (Size | Space | Extension, b'\r') => SizeLf,
            // Some readers end the line at a lone line feed, others do not: two readers would see different chunks.
            (Extension, b'\n') => return Err(MalformedResponse::Chunk),
            (Extension, _) => {
                self.count_extension()?;
                Extension
            }
            // A chunk of size zero is the last one (RFC 9112, 7.1).
            (SizeLf, b'\n') if self.left == 0 => LineStart,
            (SizeLf, b'\n') => {
                self.size = self.left;
                Data
            }
            (DataCr, b'\r') => DataLf,
            (DataLf, b'\n') => {
                // The digits are counted for each size; the bytes of extensions are counted for the whole body.
                self.digits = 0;
                Start
            }
            // A head may have lines without a carriage return. Here a reader could take such a line for the end.
            (LineStart | Trailer, b'\n') => return Err(MalformedResponse::Trailers),
            // Without trailers the body ends with an empty line, so no bytes are collected for the parser of trailers.
            (LineStart, b'\r') if self.trailers.is_empty() => LastLf,
            (LineStart | Trailer, _) => {
                self.add_trailer(byte)?;
                match (self.state, byte) {
                    (LineStart, b'\r') => LastLf,
                    (Trailer, b'\r') => TrailerLf,
                    _ => Trailer,
                }
            }
            (TrailerLf, b'\n') => {
                self.trailer_lines += 1;
                if self.trailer_lines > HEADERS_MAX {
                    return Err(MalformedResponse::Trailers);
                }
                self.add_trailer(byte)?;
                LineStart
            }
            (LastLf, b'\n') => {
                if !self.trailers.is_empty() {
                    self.add_trailer(byte)?;
                }
                Over
            }
            _ => return Err(MalformedResponse::Chunk),
        })
    }

    fn add_digit(&mut self, byte: u8) -> Result<(), MalformedResponse> {
        self.digits += 1;
        let digit = char::from(byte).to_digit(16).ok_or(MalformedResponse::Chunk)?;
        if self.digits > SIZE_DIGITS_MAX {
            return Err(MalformedResponse::Chunk);
        }
        // Sixteen hexadecimal digits fit into 64 bits.
        self.left = (self.left << 4) | u64::from(digit);
        Ok(())
    }

    fn count_extension(&mut self) -> Result<(), MalformedResponse> {
        self.extension_bytes += 1;
        let fits = self.extension_bytes < EXTENSION_BYTES_MAX;
        fits.then_some(()).ok_or(MalformedResponse::Extensions)
    }

    fn add_trailer(&mut self, byte: u8) -> Result<(), MalformedResponse> {
        self.trailers.push(byte);
        let fits = self.trailers.len() < TRAILER_BYTES_MAX;
        fits.then_some(()).ok_or(MalformedResponse::Trailers)
    }

    /// Returns the trailers of a body that has ended, if there are any.
    pub(super) fn take_trailers(&mut self) -> Result<Option<Box<HeaderMap>>, MalformedResponse> {
        let text = std::mem::take(&mut self.trailers);
        if text.is_empty() {
            // Nearly always no trailers follow, so nothing is parsed.
            return Ok(None);
        }
        let malformed = |_| MalformedResponse::Trailers;
        let mut lines = vec![httparse::EMPTY_HEADER; self.trailer_lines];
        let parsed = httparse::parse_headers(&text, &mut lines).map_err(malformed)?;
        let httparse::Status::Complete((_, lines)) = parsed else {
            return Err(MalformedResponse::Trailers);
        };
        let mut trailers = HeaderMap::with_capacity(lines.len());
        for line in lines {
            let name = HeaderName::from_bytes(line.name.as_bytes());
            let value = HeaderValue::from_bytes(line.value);
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(MalformedResponse::Trailers);
            };
            trailers.append(name, value);
        }
        Ok(Some(Box::new(trailers)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a chunked body. Returns its data, whether it has ended, and the fault if it is malformed.
    fn decode(pieces: &[&[u8]]) -> (Vec<u8>, bool, Option<MalformedResponse>) {
        let (mut decoder, mut all) = (ChunkDecoder::default(), Vec::new());
        for piece in pieces {
            let mut bytes = piece.to_vec();
            let decoded = decoder.decode(&mut bytes);
            all.extend_from_slice(&bytes[..decoded.data]);
            if decoded.fault.is_some() {
                return (all, false, decoded.fault);
            }
        }
        let fault = decoder.take_trailers().err().filter(|_| decoder.is_over());
        (all, decoder.is_over(), fault)
    }

    #[track_caller]
    fn check(body: &str, data: &str, is_over: bool, fault: Option<MalformedResponse>) {
        for cut in 0..=body.len() {
            let (first, second) = body.as_bytes().split_at(cut);
            let decoded = decode(&[first, second]);
            assert_eq!(decoded, (data.as_bytes().to_vec(), is_over, fault), "cut at {cut}");
        }
    }

    #[test]
    fn all_chunks_of_a_read_become_one_run() {
        let mut bytes = b"2\r\nab\r\n1;x=y\r\nc\r\nA \t\r\n0123456789\r\n0\r\n\r\nrest".to_vec();
        let mut decoder = ChunkDecoder::default();
        let Decoded { data, used, fault } = decoder.decode(&mut bytes);
        assert_eq!((&bytes[..data], bytes.len() - used, fault), (&b"abc0123456789"[..], 4, None));
        assert!(decoder.is_over());
    }

    #[test]
    fn bodies_end_with_an_empty_chunk_and_trailers() {
        check("1\r\na\r\n0\r\n\r\n", "a", true, None);
        check("1\r\na\r\n000;x\r\nx: y\r\nx: z\r\n\r\n", "a", true, None);
        check("3\r\nab", "ab", false, None);
        check("0\r\nx y\r\n\r\n", "", true, Some(MalformedResponse::Trailers));
        check("0\r\nx: y\nz: z\r\n\r\n", "", false, Some(MalformedResponse::Trailers));
        check("0\r\n\n", "", false, Some(MalformedResponse::Trailers));
    }

    #[test]
    fn odd_sizes_and_line_ends_are_refused() {
        let chunk = Some(MalformedResponse::Chunk);
        for body in [
            "\r\n",
            " 1\r\na\r\n",
            "x\r\n",
            "-1\r\n",
            "0x1\r\n",
            "1\na\n",
            "1;a\nb\r\n",
            "1 2\r\n",
            "1\r1",
            "00000000000000000\r\n",
            "10000000000000000\r\n",
        ] {
            check(body, "", false, chunk);
        }
        check("1\r\nab\r\n", "a", false, chunk);
        check("1\r\na\n", "a", false, chunk);
        check("1\r\na\r1", "a", false, chunk);
    }

    #[test]
    fn what_is_not_data_is_bounded() {
        let long = "x".repeat(EXTENSION_BYTES_MAX);
        let (_, _, fault) = decode(&[b"1;", long.as_bytes()]);
        assert_eq!(fault, Some(MalformedResponse::Extensions));
        let (_, _, fault) = decode(&[b"1", " ".repeat(EXTENSION_BYTES_MAX).as_bytes()]);
        assert_eq!(fault, Some(MalformedResponse::Extensions));
        let (_, _, fault) = decode(&[b"0\r\n", long.as_bytes()]);
        assert_eq!(fault, Some(MalformedResponse::Trailers));
        let (_, _, fault) = decode(&[b"0\r\n", "a:\r\n".repeat(HEADERS_MAX + 1).as_bytes()]);
        assert_eq!(fault, Some(MalformedResponse::Trailers));
    }
}
