//! The process of a proxy that listens on an address. Its output is read so that the process never blocks, and the last
//! lines are kept.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use url::Url;

use crate::lab::doctor::findings::shown;
use crate::lab::doctor::link::{Arrival, Link};
use crate::lab::doctor::traffic::TrafficEvent;
use crate::transport::child::{Program, SpawnError};
use crate::transport::random::random_bytes;
use crate::transport::tasks;

/// Number of last lines of the output that are kept.
const LAST_WORDS: usize = 3;

/// The interval between attempts to connect.
const TRY_EVERY: Duration = Duration::from_millis(50);

type LastWords = Arc<Mutex<VecDeque<String>>>;

/// A running proxy that listens on an address.
pub(super) struct ListeningProxy {
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
    words: LastWords,
}

impl ListeningProxy {
    pub(super) fn start(program: &Program) -> Result<Self, SpawnError> {
        let link = Link::start(program)?;
        let words = LastWords::default();
        let (stop, stopped) = oneshot::channel();
        let running = tasks::spawn(attend(link, Arc::clone(&words), stopped));
        Ok(Self { stop, running, words })
    }

    /// Waits until a process listens on the address.
    ///
    /// # Errors
    /// The reason, as text, why no process listens.
    pub(super) async fn ready(&self, url: &Url, patience: Duration) -> Result<(), String> {
        let host = url.host_str().unwrap_or("127.0.0.1").to_owned();
        let port = url.port_or_known_default().unwrap_or(80);
        let deadline = Instant::now() + patience;
        while TcpStream::connect((&*host, port)).await.is_err() {
            let why = match (self.running.is_finished(), Instant::now() >= deadline) {
                (true, _) => "the proxy ended before it listened".to_owned(),
                (_, true) => format!("the proxy does not listen at {url} within {patience:?}"),
                _ => {
                    sleep(TRY_EVERY).await;
                    continue;
                }
            };
            return Err(why + &self.last_words());
        }
        Ok(())
    }

    /// Returns the last lines of the proxy's output, for an error.
    fn last_words(&self) -> String {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        match words.is_empty() {
            true => String::new(),
            false => format!("; its last words: {}", Vec::from(words.clone()).join(" | ")),
        }
    }

    /// Ends the proxy with all its descendants.
    pub(super) async fn end(self) {
        let _ = self.stop.send(());
        let _ = self.running.await;
    }
}

/// Reads the output until it ends or `stopped` is ready, then ends the process.
async fn attend(mut link: Link, words: LastWords, mut stopped: oneshot::Receiver<()>) {
    loop {
        let arrived = tokio::select! {
            arrived = link.next(Instant::now() + Duration::from_secs(3600)) => arrived,
            _ = &mut stopped => break,
        };
        let line = match arrived.map(|arrived| arrived.what) {
            Some(Arrival::Seen(TrafficEvent::Stderr(line))) => line,
            Some(Arrival::Seen(TrafficEvent::Received { message, .. })) => {
                String::from_utf8_lossy(message.raw()).into_owned()
            }
            Some(Arrival::Closed) => break,
            _ => continue,
        };
        if line.trim().is_empty() {
            continue;
        }
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() >= LAST_WORDS {
            words.pop_front();
        }
        words.push_back(shown(line.as_bytes()));
    }
    link.close().await;
}

/// The first port for proxies, and the number of ports. The system gives these ports to no other program, so none can
/// take a port before the proxy listens on it.
const PORTS: (u16, u16) = (10_000, 20_000);

/// Maximum number of ports that are tried.
const PORTS_TRIED: usize = 20;

/// Returns a port on which no process listens.
///
/// # Errors
/// If no such port is found.
pub(super) fn free_port() -> std::io::Result<u16> {
    for bytes in std::iter::repeat_with(random_bytes::<2>).take(PORTS_TRIED).flatten() {
        let port = PORTS.0 + u16::from_le_bytes(bytes) % PORTS.1;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
