//! Events of the console, in the place of signals.

use std::{future, io};

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};

use super::process::Signal;

/// Ctrl-C, which counts as SIGINT, and Ctrl-Break, a closed console and the shutdown of the system, which count as
/// SIGTERM. After the last two the system ends the process within seconds.
#[derive(Debug)]
pub struct Signals {
    interrupt: CtrlC,
    stop: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl Signals {
    /// Takes the events from their default meaning from now on.
    ///
    /// # Errors
    /// If the system does not deliver them.
    pub fn to_stop() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            stop: ctrl_break()?,
            close: ctrl_close()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// The same: no other event could be passed on.
    ///
    /// # Errors
    /// If the system does not deliver them.
    pub fn to_pass_on() -> io::Result<Self> {
        Self::to_stop()
    }

    /// The next event. Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.stop.recv() => Signal::SIGTERM,
            _ = self.close.recv() => Signal::SIGTERM,
            _ = self.shutdown.recv() => Signal::SIGTERM,
        }
    }
}

/// Requests to read the settings again: Windows has no signal for them, so none comes.
#[derive(Debug)]
pub struct Hangups;

impl Hangups {
    /// Waits for none.
    ///
    /// # Errors
    /// Never.
    pub fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for the next signal: on Windows for ever.
    pub async fn next(&mut self) {
        future::pending().await
    }

    /// Whether the request came because the terminal was closed.
    pub fn was_end_of_terminal(&self) -> bool {
        false
    }
}
