//! A message that is too long for memory, in a file without a name, so that nothing is left on the disk after the
//! message is dropped or this process ends in any way.

use std::{env, fs::File, io, path::PathBuf, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use tokio::task;

use crate::platform::files;

/// Limit of the bytes that are written or read at a time. The size makes the step to another thread worth its cost, and
/// is the memory that a slow reader needs.
const CHUNK: usize = 128 << 10;

/// Limit of the pieces of a message that wait to be written, whatever their size, because each piece may keep its whole
/// read buffer in memory.
const PIECES_MAX: usize = 64;

/// Why bytes could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    /// The message would be longer than its limit.
    #[error("the message has more than {max} bytes")]
    Full {
        /// The limit in bytes.
        max: u64,
    },
    /// The disk is full, or the temporary directory does not exist.
    #[error("the message could not be kept in a temporary file")]
    Io(#[from] io::Error),
}

/// Bytes in a temporary file in the directory that `TMPDIR` names.
///
/// The first 128 KiB are collected in memory before anything is written.
#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    max: u64,
    /// The file; `None` until the first bytes are written.
    file: Option<Arc<File>>,
    /// Number of bytes in the file.
    written: u64,
    /// The pieces after the bytes in the file, still in memory.
    held: Vec<Bytes>,
    held_bytes: usize,
}

impl Spill {
    /// Returns an empty spill with a limit of `max` bytes.
    pub fn new(max: u64) -> Self {
        Self::within(env::temp_dir(), max)
    }

    fn within(folder: PathBuf, max: u64) -> Self {
        Self { folder, max, file: None, written: 0, held: Vec::new(), held_bytes: 0 }
    }

    /// Returns the number of bytes that were pushed.
    pub fn size(&self) -> u64 {
        self.written + self.held_bytes as u64
    }

    /// Appends `bytes`. They belong to the spill from the first poll on, so dropping the future only postpones the
    /// write.
    ///
    /// # Errors
    ///
    /// If the spill would exceed its limit (then nothing is appended), or the system cannot write (then the spill can
    /// only be dropped).
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

    /// Writes the pieces in memory to the file. If the future is dropped, the next write writes the same bytes at the
    /// same place.
    async fn write(&mut self) -> io::Result<()> {
        let (folder, file, mut at) = (self.folder.clone(), self.file.clone(), self.written);
        // Copied, not taken: if this future is dropped, the next write still has the pieces. Copies of `Bytes` share
        // their memory.
        let pieces = self.held.clone();
        let file = on_blocking_thread(move || {
            let file = match file {
                Some(file) => file,
                // The file never has a name, so that the system frees it in whatever way the process ends.
                None => Arc::new(tempfile::tempfile_in(folder)?),
            };
            for piece in pieces {
                files::write_all_at(&file, &piece, at)?;
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

    /// Returns the bytes in pieces of at most 128 KiB, each read when it is needed.
    pub fn into_reader(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        stream::try_unfold((self, 0), |(mut spill, at)| async move {
            let piece = spill.read(at).await?;
            Ok(piece.map(|piece| {
                let next = at + piece.len() as u64;
                (piece, (spill, next))
            }))
        })
    }

    /// Returns the bytes from a position on, at most one chunk; `None` at the end.
    async fn read(&mut self, at: u64) -> io::Result<Option<Bytes>> {
        // The last pieces are written too, so that a slow reader keeps none of their read buffers in memory. If the
        // disk is full, the pieces stay in memory, because a complete message must not be lost.
        if at == 0 && !self.held.is_empty() && self.write().await.is_err() {
            self.held = vec![self.held.concat().into()];
        }
        if at >= self.written
            && let Some(last) = self.held.last_mut()
            && !last.is_empty()
        {
            return Ok(Some(last.split_to(last.len().min(CHUNK))));
        }
        let length = self.written.saturating_sub(at).min(CHUNK as u64);
        let (Some(file), 1..) = (self.file.clone(), length) else { return Ok(None) };
        let piece = on_blocking_thread(move || {
            // The buffer holds at most a chunk.
            let mut piece = BytesMut::zeroed(length as usize);
            files::read_exact_at(&file, &mut piece, at)?;
            Ok(piece.freeze())
        });
        Ok(Some(piece.await?))
    }
}

/// Runs work that may wait for a disk, on a thread on which nothing else waits.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::{
        pin,
        task::{Context, Waker},
    };

    use futures::TryStreamExt;
    use tempfile::TempDir;

    use super::*;

    /// Returns bytes whose content shows their position.
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

    async fn read(spill: Spill) -> Vec<u8> {
        let pieces: Vec<Bytes> = spill.into_reader().try_collect().await.unwrap();
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
                assert!(read(spill).await == content, "{size} in pieces of {piece}");
            }
        }
        let content = text(10_000);
        assert_eq!(read(spill(&content, 1).await).await, content);
    }

    #[tokio::test]
    async fn beyond_its_room_nothing_is_kept() {
        let mut spill = Spill::new(10);
        spill.push(text(9)).await.unwrap();
        let refused = spill.push(text(2)).await;
        assert!(matches!(refused, Err(SpillError::Full { max: 10 })), "{refused:?}");
        assert_eq!(spill.size(), 9);
        spill.push(text(1)).await.unwrap();
        assert_eq!(read(spill).await, [&text(9)[..], &text(1)[..]].concat());
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
        assert!(read(spill).await == content);
    }

    // Unix only, because Windows shows the name of the file until it is closed.
    #[cfg(unix)]
    #[tokio::test]
    async fn nobody_finds_it_in_its_folder() {
        let folder = TempDir::new().unwrap();
        let mut spill = Spill::within(folder.path().to_owned(), u64::MAX);
        let is_empty = || std::fs::read_dir(&folder).unwrap().next().is_none();
        spill.push(text(3 * CHUNK)).await.unwrap();
        assert!(spill.file.is_some() && is_empty());
        let mut reader = pin::pin!(spill.into_reader());
        assert!(reader.try_next().await.unwrap().is_some() && is_empty());
    }

    #[tokio::test]
    async fn without_a_folder_what_is_in_memory_comes_back() {
        let folder = TempDir::new().unwrap();
        let mut spill = Spill::within(folder.path().join("none"), u64::MAX);
        let content = text(CHUNK - 1);
        for piece in [content.slice(..1000), content.slice(1000..)] {
            spill.push(piece).await.unwrap();
        }
        assert!(read(spill).await == content);
    }

    // A file that is open only for reading refuses writes, as a file on a full disk does.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_disk_that_becomes_full_behind_the_last_bytes_cuts_nothing_off() {
        use std::os::fd::AsRawFd;

        let (content, size) = (text(2 * CHUNK + 7), 2 * CHUNK);
        let mut spill = spill(&content.slice(..size), CHUNK).await;
        spill.max = u64::MAX;
        let number = spill.file.as_ref().unwrap().as_raw_fd();
        spill.file = Some(Arc::new(File::open(format!("/proc/self/fd/{number}")).unwrap()));
        spill.push(content.slice(size..)).await.unwrap();
        assert!(read(spill).await == content);
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
