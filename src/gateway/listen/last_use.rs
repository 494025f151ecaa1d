//! Connections ordered by last use, so that a full listener can close an idle one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant};
use tracing::warn;

/// The interval of log messages about closed connections.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Notes when a connection was last used. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LastUse {
    shared: Arc<Use>,
}

#[derive(Debug)]
struct Use {
    /// Counts the uses of all connections of the listener.
    order: Arc<AtomicU64>,
    /// The count at the last use of this connection.
    last: AtomicU64,
    /// Shared with each endless answer, to know whether there is one.
    answer: Arc<()>,
}

/// Marks an endless answer on a connection, during which the connection counts as used.
pub(super) struct EndlessAnswer(#[expect(dead_code, reason = "it is there to be counted")] Arc<()>);

impl LastUse {
    fn new(order: &Arc<AtomicU64>) -> Self {
        let (order, last) = (Arc::clone(order), AtomicU64::default());
        let shared = Arc::new(Use { order, last, answer: Arc::default() });
        let last_use = Self { shared };
        last_use.renew();
        last_use
    }

    /// Notes that a request has arrived.
    pub(super) fn renew(&self) {
        let now = self.shared.order.fetch_add(1, Ordering::Relaxed);
        self.shared.last.store(now, Ordering::Relaxed);
    }

    /// Notes that an endless answer begins; it ends when the returned value is dropped.
    pub(super) fn begin_answer(&self) -> EndlessAnswer {
        EndlessAnswer(Arc::clone(&self.shared.answer))
    }

    fn is_silent(&self) -> bool {
        Arc::strong_count(&self.shared.answer) == 1
    }
}

/// The connections of a listener that, when it is full, closes an idle connection for each new one.
pub(super) struct SilentConnections {
    order: Arc<AtomicU64>,
    open: Vec<(LastUse, AbortHandle)>,
    /// Called for each connection that is closed.
    count: Box<dyn Fn() + Send + Sync>,
    last_warning: Option<Instant>,
}

impl SilentConnections {
    /// Returns an empty table. `count` is called for each connection that is closed.
    pub(super) fn new(count: impl Fn() + Send + Sync + 'static) -> Self {
        let (order, open) = (Arc::default(), Vec::new());
        Self { order, open, count: Box::new(count), last_warning: None }
    }

    /// Returns the state of a new connection, which counts as a use.
    pub(super) fn first_use(&self) -> LastUse {
        LastUse::new(&self.order)
    }

    /// Adds a connection, which the task `task` serves.
    pub(super) fn add(&mut self, last_use: LastUse, task: AbortHandle) {
        self.open.retain(|(_, task)| !task.is_finished());
        self.open.push((last_use, task));
    }

    /// Closes the connection whose last request is the oldest, among those without an endless answer. Returns false if
    /// there is none.
    pub(super) fn close_one(&mut self) -> bool {
        self.open.retain(|(_, task)| !task.is_finished());
        let silent = self.open.iter().enumerate().filter(|(_, (last_use, _))| last_use.is_silent());
        let oldest =
            silent.min_by_key(|(_, (last_use, _))| last_use.shared.last.load(Ordering::Relaxed));
        let Some((place, _)) = oldest else { return false };
        self.open.swap_remove(place).1.abort();
        (self.count)();
        if self.last_warning.is_none_or(|last_warning| last_warning.elapsed() >= TOLD_EVERY) {
            self.last_warning = Some(Instant::now());
            warn!(
                "the admin listener has as many connections as it serves; closed the one that was \
                 silent for longest"
            );
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn the_connection_that_was_silent_for_longest_is_closed() {
        let mut connections = SilentConnections::new(|| ());
        let mut tasks = Vec::new();
        let mut uses = Vec::new();
        for _ in 0..4 {
            let last_use = connections.first_use();
            let task = tokio::spawn(pending::<()>());
            connections.add(last_use.clone(), task.abort_handle());
            tasks.push(task);
            uses.push(last_use);
        }
        // The first connection has an endless answer, and the second has just made a request.
        let answer = uses[0].begin_answer();
        uses[1].renew();
        let mut closed = Vec::new();
        for _ in 0..3 {
            assert!(connections.close_one());
            tokio::task::yield_now().await;
            let ended = |task: &tokio::task::JoinHandle<()>| task.is_finished();
            closed.push(tasks.iter().map(ended).collect::<Vec<_>>());
        }
        assert_eq!(closed[0], [false, false, true, false]);
        assert_eq!(closed[1], [false, false, true, true]);
        assert_eq!(closed[2], [false, true, true, true]);
        assert!(!connections.close_one());
        drop(answer);
        assert!(connections.close_one());
        assert!(tasks.remove(0).await.unwrap_err().is_cancelled());
        assert!(!connections.close_one());
    }
}
