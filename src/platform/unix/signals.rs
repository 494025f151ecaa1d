//! Signals to this process.

use std::fs::File;
use std::io;

use nix::sys::signal::raise;
use tokio::signal::unix::{self, SignalKind, signal};

use super::process::Signal;

/// The SIGTERM and SIGINT signals to this process, and SIGHUP if it is included.
#[derive(Debug)]
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: Option<unix::Signal>,
}

impl Signals {
    /// Receives SIGTERM and SIGINT from now on, instead of their default action.
    ///
    /// # Errors
    /// If the system does not deliver signals.
    pub fn to_stop() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())?, hangup: None })
    }

    /// Receives SIGTERM, SIGINT and SIGHUP from now on, instead of their default action.
    ///
    /// # Errors
    /// If the system does not deliver signals.
    pub fn to_pass_on() -> io::Result<Self> {
        let stop = Self::to_stop()?;
        Ok(Self { hangup: Some(signal(SignalKind::hangup())?), ..stop })
    }

    /// Waits for the next signal. Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        let Self { terminate, interrupt, hangup } = self;
        let hangup = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => Signal::SIGTERM,
            _ = interrupt.recv() => Signal::SIGINT,
            _ = hangup => Signal::SIGHUP,
        }
    }
}

/// Receives SIGHUP signals, each of which is a request to read the settings again.
#[derive(Debug)]
pub struct Hangups {
    signal: unix::Signal,
    /// Whether this process had a terminal at its start.
    had_terminal: bool,
}

/// Whether a terminal can send signals to this process.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

impl Hangups {
    /// Receives the signal from now on, instead of its default action.
    ///
    /// # Errors
    /// If the system does not deliver signals.
    pub fn listen() -> io::Result<Self> {
        let had_terminal = has_terminal();
        Ok(Self { signal: signal(SignalKind::hangup())?, had_terminal })
    }

    /// Waits for the next signal. Cancel-safe.
    pub async fn next(&mut self) {
        self.signal.recv().await;
    }

    /// Whether the signal came because the terminal was closed. Closing a window is not a request to reload, so SIGTERM
    /// is then sent to this process to stop it.
    pub fn was_end_of_terminal(&self) -> bool {
        self.had_terminal && !has_terminal() && raise(Signal::SIGTERM).is_ok()
    }
}
