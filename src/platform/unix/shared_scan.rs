//! One scan of the process table for all callers that wait at the same time, because the table is long and many servers
//! may end together.

use std::{
    io, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

/// The result of a scan, for all callers that waited for it.
type ScanResult<T> = Option<Arc<T>>;

/// Minimum pause between two scans. After a longer scan the pause is as long as the scan, so that scans use at most
/// half of one processor, however many servers end.
const PAUSE: Duration = Duration::from_millis(5);

/// Scans for all callers, in a thread that ends when no caller waits. It is a thread and not a task, because a caller
/// must not depend on a runtime, or on a future that another caller no longer polls.
pub(crate) struct SharedScan<T: 'static> {
    look: fn() -> Option<T>,
    waiters: Mutex<Waiters<T>>,
}

struct Waiters<T> {
    waiting: Vec<oneshot::Sender<ScanResult<T>>>,
    /// Whether the thread runs.
    busy: bool,
}

impl<T: Send + Sync> SharedScan<T> {
    pub(crate) const fn new(look: fn() -> Option<T>) -> Self {
        Self { look, waiters: Mutex::new(Waiters { waiting: Vec::new(), busy: false }) }
    }

    /// Returns the result of a scan that begins after this call; `None` if the scan fails.
    pub(crate) async fn scan(&'static self) -> ScanResult<T> {
        let (reply, result) = oneshot::channel();
        self.ask(reply);
        result.await.ok().flatten()
    }

    fn ask(&'static self, reply: oneshot::Sender<ScanResult<T>>) {
        let mut waiters = self.lock();
        waiters.waiting.push(reply);
        if !waiters.busy {
            match self.start() {
                Ok(()) => waiters.busy = true,
                // Drop the callers' channels: they get no result, as if the table could not be read.
                Err(error) => {
                    tracing::warn!(%error, "no thread to read the process table");
                    waiters.waiting.clear();
                }
            }
        }
    }

    fn start(&'static self) -> io::Result<()> {
        let name = "process table".to_owned();
        thread::Builder::new().name(name).spawn(|| self.serve()).map(drop)
    }

    fn serve(&self) {
        let mut pause = Duration::ZERO;
        loop {
            // A caller that asks during a scan needs another scan, because this one may already have passed the process
            // that the caller looks for.
            if !self.is_asked() {
                return;
            }
            thread::sleep(pause);
            let waiting = mem::take(&mut self.lock().waiting);
            let begin = Instant::now();
            let seen = (self.look)().map(Arc::new);
            pause = begin.elapsed().max(PAUSE);
            for reply in waiting {
                // Ignore the error: the caller no longer waits.
                let _ = reply.send(seen.clone());
            }
        }
    }

    /// Whether a caller waits. If not, the thread ends.
    fn is_asked(&self) -> bool {
        let mut waiters = self.lock();
        waiters.busy = !waiters.waiting.is_empty();
        waiters.busy
    }

    fn lock(&self) -> MutexGuard<'_, Waiters<T>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        task::{Context, Waker},
    };

    use futures::future::join_all;

    use super::*;

    static COUNT: AtomicUsize = AtomicUsize::new(0);

    /// Locked while callers ask, so that no scan ends meanwhile.
    static ASKING: Mutex<()> = Mutex::new(());

    /// Returns the number of this scan, and the number of all scans that have begun when this one ends.
    fn count() -> Option<(usize, usize)> {
        let begun = COUNT.fetch_add(1, SeqCst);
        drop(ASKING.lock().unwrap());
        Some((begun, COUNT.load(SeqCst)))
    }

    #[tokio::test]
    async fn many_share_a_look_that_begins_after_they_asked() {
        static SCAN: SharedScan<(usize, usize)> = SharedScan::new(count);
        for _ in 0..3 {
            let before = COUNT.load(SeqCst);
            let mut scans: Vec<_> = (0..200).map(|_| Box::pin(SCAN.scan())).collect();
            {
                let _asking = ASKING.lock().unwrap();
                let mut context = Context::from_waker(Waker::noop());
                for scan in &mut scans {
                    assert!(scan.as_mut().poll(&mut context).is_pending());
                }
            }
            for one in join_all(scans).await {
                let (begun, ended) = *one.expect("a look");
                assert!(begun >= before && ended == begun + 1, "{before} {begun} {ended}");
            }
            assert!(COUNT.load(SeqCst) <= before + 2);
        }
    }

    #[tokio::test]
    async fn one_who_stops_to_wait_keeps_nobody() {
        static SCAN: SharedScan<()> = SharedScan::new(|| Some(()));
        let mut given_up = Box::pin(SCAN.scan());
        let mut context = Context::from_waker(Waker::noop());
        let _ = given_up.as_mut().poll(&mut context);
        assert!(SCAN.scan().await.is_some());
        drop(given_up);
        assert!(SCAN.scan().await.is_some());
    }

    #[tokio::test]
    async fn what_cannot_be_seen_is_said() {
        static SCAN: SharedScan<()> = SharedScan::new(|| None);
        assert!(SCAN.scan().await.is_none());
    }
}
