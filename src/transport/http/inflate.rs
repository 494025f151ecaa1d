//! Decompresses a body that the server compressed although it was not asked to. Forwarding it compressed is no longer
//! possible, because its headers are already sent, so the client would lose the answer.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

use crate::transport::http::client::{UpstreamBody, UpstreamError};

/// Bytes that are decompressed at a time: at most a megabyte after decompression.
const STEP: usize = 1 << 10;

/// A compression that Milepost can remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    None,
    Gzip,
    Deflate,
}

impl Coding {
    /// Returns the compression of a body; `None` if Milepost does not know it.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let coding = headers.get(header::CONTENT_ENCODING).map(|coding| coding.as_bytes());
        match coding.unwrap_or_default().to_ascii_lowercase().trim_ascii() {
            b"" | b"identity" => Some(Self::None),
            b"gzip" | b"x-gzip" => Some(Self::Gzip),
            b"deflate" => Some(Self::Deflate),
            _ => None,
        }
    }
}

/// The decoder for the compression of a body.
enum Decoder {
    None,
    Gzip(Box<GzDecoder<Vec<u8>>>),
    Deflate(Box<ZlibDecoder<Vec<u8>>>),
}

/// The body of a response, decompressed.
pub(crate) struct PlainBody {
    body: UpstreamBody,
    decoder: Decoder,
    /// Compressed bytes that have not been decoded yet.
    waiting: VecDeque<Bytes>,
}

impl PlainBody {
    /// Returns a decompressed body; `None` if the compression is not known.
    pub(crate) fn new(body: UpstreamBody, headers: &HeaderMap) -> Option<Self> {
        Some(Self::coded(body, Coding::of(headers)?))
    }

    /// Returns a body, decompressed in the way of `coding`.
    pub(crate) fn coded(body: UpstreamBody, coding: Coding) -> Self {
        let decoder = match coding {
            Coding::None => Decoder::None,
            Coding::Gzip => Decoder::Gzip(Box::new(GzDecoder::new(Vec::new()))),
            Coding::Deflate => Decoder::Deflate(Box::new(ZlibDecoder::new(Vec::new()))),
        };
        Self { body, decoder, waiting: VecDeque::new() }
    }

    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        loop {
            if let Some(next) = self.waiting.pop_front() {
                match self.decoder.read(&next) {
                    Ok(plain) if plain.is_empty() => continue,
                    plain => {
                        return Poll::Ready(Some(plain.map_err(UpstreamError::Compressed)));
                    }
                }
            }
            match ready!(self.body.poll_data(cx)) {
                Some(Ok(chunk)) if matches!(self.decoder, Decoder::None) => {
                    return Poll::Ready(Some(Ok(chunk)));
                }
                Some(Ok(mut chunk)) => {
                    while !chunk.is_empty() {
                        // In small steps, because DEFLATE expands up to 1,032-fold and a step is decompressed as a
                        // whole.
                        let step = chunk.split_to(chunk.len().min(STEP));
                        self.waiting.push_back(step);
                    }
                }
                other => return Poll::Ready(other),
            }
        }
    }
}

impl From<UpstreamBody> for PlainBody {
    fn from(body: UpstreamBody) -> Self {
        Self { body, decoder: Decoder::None, waiting: VecDeque::new() }
    }
}

impl Decoder {
    fn read(&mut self, bytes: &[u8]) -> io::Result<Bytes> {
        let plain = match self {
            Self::None => return Ok(Bytes::copy_from_slice(bytes)),
            Self::Gzip(decoder) => {
                decoder.write_all(bytes)?;
                // Flush, so that the client gets the bytes that have arrived although more will follow.
                decoder.flush()?;
                std::mem::take(decoder.get_mut())
            }
            Self::Deflate(decoder) => {
                decoder.write_all(bytes)?;
                decoder.flush()?;
                std::mem::take(decoder.get_mut())
            }
        };
        Ok(plain.into())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    #[test]
    fn what_was_compressed_comes_out_again_however_it_is_cut() {
        let text = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}".repeat(50);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&text).unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&text).unwrap();
        let decoders = [
            (Decoder::Gzip(Box::new(GzDecoder::new(Vec::new()))), gzip.finish().unwrap()),
            (Decoder::Deflate(Box::new(ZlibDecoder::new(Vec::new()))), zlib.finish().unwrap()),
        ];
        for (mut decoder, bytes) in decoders {
            let plain: Vec<u8> =
                bytes.chunks(3).flat_map(|piece| decoder.read(piece).unwrap()).collect();
            assert_eq!(plain, text);
        }
    }
}
