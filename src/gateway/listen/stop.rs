//! Signals to stop.

use std::{future, io};

use tokio::sync::mpsc;

use crate::platform::child::Signal;
use crate::platform::signals::Signals;
use crate::transport::tasks;

/// Limit of the signals that wait to be received. The third signal cuts everything at the latest, so a fourth would
/// have no effect.
const SIGNALS_MAX: usize = 3;

/// A signal to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM: a supervisor stops the process, and fronts may still send requests for a while.
    Terminate,
    /// SIGINT: a person stops the process.
    Interrupt,
}

/// Returns a receiver of one message for each SIGTERM and SIGINT.
///
/// # Errors
///
/// If the system does not deliver signals.
pub(super) fn signals() -> io::Result<mpsc::Receiver<StopSignal>> {
    let mut signals = Signals::to_stop()?;
    let (sender, receiver) = mpsc::channel(SIGNALS_MAX);
    tasks::spawn(async move {
        loop {
            let signal = tokio::select! {
                signal = signals.next() => signal,
                () = sender.closed() => return,
            };
            let signal = match signal {
                Signal::SIGTERM => StopSignal::Terminate,
                _ => StopSignal::Interrupt,
            };
            let _ = sender.try_send(signal);
        }
    });
    Ok(receiver)
}

/// Returns the next signal. Never completes if none can come any more.
pub(super) async fn next_signal(stop: &mut mpsc::Receiver<StopSignal>) -> StopSignal {
    match stop.recv().await {
        Some(signal) => signal,
        None => future::pending().await,
    }
}
