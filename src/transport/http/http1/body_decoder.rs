//! Reads the body of a response, in the way in which its end is known (RFC 9112, 6.3).

use http::HeaderMap;

use super::chunk_decoder::{ChunkDecoder, Decoded};
use super::malformed::MalformedResponse;

/// Reads one body. The variants are the ways to know its end.
#[derive(Debug)]
pub(super) enum BodyDecoder {
    /// By the declared length: the number of bytes that are still to come.
    Length(u64),
    Chunked(ChunkDecoder),
    /// By the close of the connection.
    UntilClose,
}

impl BodyDecoder {
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_over(),
            Self::UntilClose => false,
        }
    }

    /// Returns the number of bytes left in the current piece of the body, if it is known.
    pub(super) fn piece(&self) -> u64 {
        match self {
            Self::Length(left) => *left,
            Self::Chunked(chunks) => chunks.size(),
            Self::UntilClose => 0,
        }
    }

    /// Returns why a body that ends here is incomplete.
    pub(super) fn incomplete(&self) -> MalformedResponse {
        match self {
            Self::Chunked(chunks) if !chunks.is_within_data() => {
                MalformedResponse::IncompleteChunks
            }
            _ => MalformedResponse::IncompleteBody,
        }
    }

    /// Reads some bytes, and moves the data in them to the front.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> Decoded {
        let used = match self {
            Self::Chunked(chunks) => return chunks.decode(bytes),
            // RFC 9112, 6.3: without a length and without chunks, the body ends when the connection closes.
            Self::UntilClose => bytes.len(),
            Self::Length(left) => {
                let count = (*left).min(bytes.len() as u64);
                *left -= count;
                usize::try_from(count).unwrap_or(bytes.len())
            }
        };
        Decoded { data: used, used, fault: None }
    }

    /// Returns the trailers of a body that has ended, if there are any.
    pub(super) fn take_trailers(&mut self) -> Result<Option<Box<HeaderMap>>, MalformedResponse> {
        match self {
            Self::Chunked(chunks) => chunks.take_trailers(),
            _ => Ok(None),
        }
    }
}
