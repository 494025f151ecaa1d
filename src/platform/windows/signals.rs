//! Console events, in place of signals.

use std::{future, io};

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};

use super::process::Signal;

/// Ctrl-C, which counts as SIGINT, and Ctrl-Break, a closed console and a system shutdown, which count as SIGTERM.
/// After the last two, the system ends the process within seconds.
#[derive(Debug)]
pub struct Signals {
    interrupt: CtrlC,
    stop: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl Signals {
    /// Receives the events from now on, instead of their default action.
    ///
    /// # Errors
    /// If the system does not deliver the events.
    pub fn to_stop() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            stop: ctrl_break()?,
            close: ctrl_close()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// Receives the same events as [`Self::to_stop`]: there are no others to pass on.
    ///
    /// # Errors
    /// If the system does not deliver the events.
    pub fn to_pass_on() -> io::Result<Self> {
        Self::to_stop()
    }

    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.stop.recv() => Signal::SIGTERM,
            _ = self.close.recv() => Signal::SIGTERM,
            _ = self.shutdown.recv() => Signal::SIGTERM,
        }
    }
}

/// Requests to read the settings again. Windows has no such signal, so none ever comes.
#[derive(Debug)]
pub struct Hangups;

impl Hangups {
    /// Returns a value that never receives a request.
    ///
    /// # Errors
    /// Never.
    pub fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for ever, because Windows has no such signal.
    pub async fn next(&mut self) {
        future::pending().await
    }

    /// Returns false: there is no such signal on Windows.
    pub fn was_end_of_terminal(&self) -> bool {
        false
    }
}
