//! Signals to this process.

use std::fs::File;
use std::io;

use nix::sys::signal::raise;
use tokio::signal::unix::{self, SignalKind, signal};

use super::process::Signal;

/// SIGTERM and SIGINT, and SIGHUP if it is taken too.
#[derive(Debug)]
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: Option<unix::Signal>,
}

impl Signals {
    /// Takes SIGTERM and SIGINT from their default meaning from now on.
    ///
    /// # Errors
    /// If the system does not deliver signals.
    pub fn to_stop() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())?, hangup: None })
    }

    /// Takes SIGTERM, SIGINT and SIGHUP from their default meaning from now on.
    ///
    /// # Errors
    /// If the system does not deliver signals.
    pub fn to_pass_on() -> io::Result<Self> {
        let stop = Self::to_stop()?;
        Ok(Self { hangup: Some(signal(SignalKind::hangup())?), ..stop })
    }

    /// The next signal. Cancel-safe.
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

/// Receives SIGHUP signals, each of which requests to read the settings again.
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
    /// Takes the signal from its default meaning.
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

    /// Whether the signal came because the terminal was closed. Closing a window is not a request to reload, so this
    /// process is then told to stop.
    pub fn was_end_of_terminal(&self) -> bool {
        self.had_terminal && !has_terminal() && raise(Signal::SIGTERM).is_ok()
    }
}
