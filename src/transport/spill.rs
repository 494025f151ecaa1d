//! A message that is too long for memory, in a file without a name: after the end of the message or
//! of this process, however it ends, nothing is left on the disk.

use std::{env, fs::File, io, ops::Range, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use tokio::task;

/// Bytes that are written or read at a time. The size makes the way to another thread cheap, and a
/// slow reader holds this much in memory.
const CHUNK: usize = 128 << 10;

/// Pieces of a spilled message waiting to be written, whatever their size: each piece may keep its
/// whole read buffer in memory.
const PIECES_MAX: usize = 64;

/// The reason why bytes could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    /// The message would be longer than it may be.
    #[error("the message has more than {max} bytes")]
    Full {
        /// Bytes that it may have.
        max: u64,
    },
    /// The disk is full, or there is no temporary folder.
    #[error("the message could not be kept in a temporary file")]
    Io(#[from] io::Error),
}

/// Bytes in a temporary file, of the folder that `TMPDIR` names.
///
/// Nothing is written before 128 KiB have come together.
#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    max: u64,
    /// `None` until the first bytes are written.
    file: Option<Arc<File>>,
    /// Bytes in the file.
    written: u64,
    /// The pieces after the spilled ones.
    held: Vec<Bytes>,
    held_bytes: usize,
}

impl Spill {
    /// Room for `max` bytes.
    pub fn new(max: u64) -> Self {
        Self::within(env::temp_dir(), max)
    }

    fn within(folder: PathBuf, max: u64) -> Self {
        Self { folder, max, file: None, written: 0, held: Vec::new(), held_bytes: 0 }
    }

    /// Bytes that were pushed.
    pub fn size(&self) -> u64 {
        self.written + self.held_bytes as u64
    }

    /// Appends `bytes`, which belong to the spill from the first poll on. Dropping the future only
    /// postpones the write.
    ///
    /// # Errors
    ///
    /// If the spill would exceed its limit, nothing is appended. If the system refuses, the spill
    /// can only be dropped.
    pub async fn push(&mut self, bytes: Bytes) -> Result<(), SpillError> {
        if bytes.len() as u64 > self.max.saturating_sub(self.size()) {
            return Err(SpillError::Full { max: self.max });
        }
        self.held_bytes += bytes.len();
        self.held.push(bytes);
        if self.held_bytes >= CHUNK || self.held.len() >= PIECES_MAX {
            self.write().await?;
        }
        Ok(())
    }

    /// Writes the held bytes. If the future is dropped, the next write writes the same bytes at the
    /// same place.
    async fn write(&mut self) -> io::Result<()> {
        let (folder, file, mut at) = (self.folder.clone(), self.file.clone(), self.written);
        let pieces = self.held.clone();
        let file = aside(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(tempfile::tempfile_in(folder)?),
            };
            for piece in pieces {
                file.write_all_at(&piece, at)?;
                at += piece.len() as u64;
            }
            Ok(file)
        });
        self.file = Some(file.await?);
        self.written = self.size();
        self.held.clear();
        self.held_bytes = 0;
        Ok(())
    }

    /// The bytes in pieces of at most 128 KiB, each read on demand, with one other piece in place
    /// of a range. A part of the range beyond the end is ignored.
    pub fn into_reader(
        self,
        replace: Option<(Range<u64>, Bytes)>,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let size = self.size();
        let (range, bytes) = replace.unwrap_or((size..size, Bytes::new()));
        let start = range.start.min(size);
        let end = range.end.clamp(start, size);
        let reader =
            SpillReader { spill: self, remaining: [0..start, end..size], between: Some(bytes) };
        stream::try_unfold(reader, |mut reader| async move {
            Ok(reader.next().await?.map(|piece| (piece, reader)))
        })
    }
}

/// A reader of the rest of a spill.
struct SpillReader {
    spill: Spill,
    /// Places in the file.
    remaining: [Range<u64>; 2],
    /// The bytes between the two parts.
    between: Option<Bytes>,
}

impl SpillReader {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if !self.spill.held.is_empty() {
            self.spill.write().await?;
        }
        let [before, after] = &mut self.remaining;
        let range = match before.is_empty() {
            false => before,
            true => match self.between.take().filter(|bytes| !bytes.is_empty()) {
                Some(bytes) => return Ok(Some(bytes)),
                None => after,
            },
        };
        let length = (range.end - range.start).min(CHUNK as u64);
        let (Some(file), 1..) = (self.spill.file.clone(), length) else { return Ok(None) };
        let at = range.start;
        let piece = aside(move || {
            // The buffer holds at most a chunk.
            let mut piece = BytesMut::zeroed(length as usize);
            file.read_exact_at(&mut piece, at)?;
            Ok(piece.freeze())
        });
        let piece = piece.await?;
        range.start += length;
        Ok(Some(piece))
    }
}

/// Runs work that may wait for a disk on a thread where nothing else waits.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::{
        fs, pin,
        task::{Context, Waker},
    };

    use futures::TryStreamExt;
    use tempfile::TempDir;

    use super::*;

    /// Bytes that tell where they are from.
    fn text(size: usize) -> Bytes {
        (0..size).map(|at| (at % 251) as u8).collect()
    }

    async fn spill(content: &Bytes, piece: usize) -> Spill {
        let mut spill = Spill::new(content.len() as u64);
        for at in (0..content.len()).step_by(piece) {
            spill.push(content.slice(at..content.len().min(at + piece))).await.unwrap();
        }
        spill
    }

    async fn read(spill: Spill, replace: Option<(Range<u64>, Bytes)>) -> Vec<u8> {
        let pieces: Vec<Bytes> = spill.into_reader(replace).try_collect().await.unwrap();
        assert!(pieces.iter().all(|piece| (1..=CHUNK).contains(&piece.len())));
        pieces.concat()
    }

    #[tokio::test]
    async fn what_was_pushed_comes_back_whatever_its_pieces() {
        let sizes = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7];
        for size in sizes {
            let content = text(size);
            for piece in [1000, CHUNK - 1, CHUNK, 2 * CHUNK + 1, usize::MAX / 2] {
                let spill = spill(&content, piece).await;
                assert_eq!(spill.size(), size as u64);
                assert!(read(spill, None).await == content, "{size} in pieces of {piece}");
            }
        }
        let content = text(10_000);
        assert_eq!(read(spill(&content, 1).await, None).await, content);
    }

    #[tokio::test]
    async fn other_bytes_stand_in_the_place_of_a_range() {
        let content = text(2 * CHUNK + 100);
        let size = content.len();
        let other = Bytes::from_static(b"\"other\"");
        for range in [
            0..0,
            0..1,
            5..9,
            CHUNK - 3..CHUNK + 3,
            CHUNK..CHUNK,
            size - 2..size,
            size..size,
            0..size,
        ] {
            for other in [other.clone(), Bytes::new()] {
                let expected =
                    [&content[..range.start], &other[..], &content[range.end..]].concat();
                let replace = (range.start as u64..range.end as u64, other);
                let found = read(spill(&content, 5000).await, Some(replace)).await;
                assert!(found == expected, "{range:?}");
            }
        }
        let beyond = read(spill(&text(9), 9).await, Some((7..u64::MAX, other.clone()))).await;
        assert_eq!(beyond, [&text(7)[..], &other[..]].concat());
        let reversed = Range { start: u64::MAX, end: 3 };
        let beyond = read(spill(&text(9), 9).await, Some((reversed, other.clone()))).await;
        assert_eq!(beyond, [&text(9)[..], &other[..]].concat());
    }

    #[tokio::test]
    async fn beyond_its_room_nothing_is_kept() {
        let mut spill = Spill::new(10);
        spill.push(text(9)).await.unwrap();
        let refused = spill.push(text(2)).await;
        assert!(matches!(refused, Err(SpillError::Full { max: 10 })), "{refused:?}");
        assert_eq!(spill.size(), 9);
        spill.push(text(1)).await.unwrap();
        assert_eq!(read(spill, None).await, [&text(9)[..], &text(1)[..]].concat());
    }

    #[tokio::test]
    async fn a_push_that_is_given_up_loses_nothing() {
        let content = text(3 * CHUNK);
        let mut spill = Spill::new(u64::MAX);
        for at in 0..3 {
            let piece = content.slice(at * CHUNK..(at + 1) * CHUNK);
            let mut push = pin::pin!(spill.push(piece));
            let _ = push.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        assert_eq!(spill.size(), 3 * CHUNK as u64);
        assert!(read(spill, None).await == content);
    }

    #[tokio::test]
    async fn nobody_finds_it_in_its_folder() {
        let folder = TempDir::new().unwrap();
        let mut spill = Spill::within(folder.path().to_owned(), u64::MAX);
        let is_empty = || fs::read_dir(&folder).unwrap().next().is_none();
        spill.push(text(3 * CHUNK)).await.unwrap();
        assert!(spill.file.is_some() && is_empty());
        let mut reader = pin::pin!(spill.into_reader(None));
        assert!(reader.try_next().await.unwrap().is_some() && is_empty());
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_an_error() {
        let folder = TempDir::new().unwrap();
        let mut spill = Spill::within(folder.path().join("none"), u64::MAX);
        spill.push(text(1)).await.unwrap();
        let refused = spill.push(text(CHUNK)).await;
        assert!(matches!(refused, Err(SpillError::Io(_))), "{refused:?}");
    }
}
