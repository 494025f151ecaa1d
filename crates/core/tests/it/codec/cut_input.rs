//! Reads the input of a fuzz target as a stream that arrives in pieces.

/// A stream, the pieces in which it arrives, and the limit of its reader.
pub(crate) struct Cut<'a> {
    pub(crate) limit: usize,
    pub(crate) input: &'a [u8],
    pub(crate) pieces: Vec<&'a [u8]>,
}

/// Reads the input of a fuzz target. The first byte is the limit. The bytes after it, up to a zero byte, are the
/// lengths of the pieces. The rest is the stream.
pub(crate) fn cut(data: &[u8]) -> Option<Cut<'_>> {
    let (limit, rest) = data.split_first()?;
    let cuts = rest.split(|&byte| byte == 0).next().unwrap_or_default();
    let input = rest.get(cuts.len() + 1..).unwrap_or_default();
    let mut pieces = Vec::new();
    let mut left = input;
    for &size in cuts {
        let (piece, more) = left.split_at(usize::from(size).min(left.len()));
        pieces.push(piece);
        left = more;
    }
    pieces.push(left);
    Some(Cut { limit: usize::from(*limit), input, pieces })
}
