//! Tasks whose futures are in boxes. The code of tokio around a task is compiled for each kind of future, 3 KB each
//! time; in a box all futures with one kind of result are of one kind.

use std::future::Future;

use futures::FutureExt;
use hyper::rt::Executor;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// Starts a task, as `tokio::spawn` does.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    tokio::spawn(future.boxed())
}

/// Starts a task of a set, as [`JoinSet::spawn`] does.
pub(crate) fn spawn_in<F>(tasks: &mut JoinSet<F::Output>, future: F) -> AbortHandle
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    tasks.spawn(future.boxed())
}

/// Starts the tasks of hyper's connections.
#[derive(Debug, Clone)]
pub(crate) struct BoxedTasks;

impl<F: Future<Output: Send + 'static> + Send + 'static> Executor<F> for BoxedTasks {
    fn execute(&self, task: F) {
        spawn(task);
    }
}
