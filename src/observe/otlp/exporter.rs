//! The queue of spans, and the thread that sends them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc as threads};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::settings::{self, Sampler, Settings};
use super::wire::{Failure, Wire};
use super::{Counts, Mark, Over, span};
use crate::progress::Summary;
use crate::protocol::trace_context::to_hex;

/// The longest time that the end of the process waits for spans to be sent.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// How long after a failure it is tried again, at first; the next time, twice as long.
const AGAIN: Duration = Duration::from_secs(1);

/// Who takes calls and makes spans of them.
struct Exporter {
    over: Over,
    sampler: Sampler,
    queue: mpsc::Sender<Vec<u8>>,
    tally: Arc<Tally>,
    closing: watch::Sender<bool>,
    ended: Mutex<threads::Receiver<()>>,
}

/// What becomes of spans.
#[derive(Debug, Default)]
struct Tally {
    exported: AtomicU64,
    dropped: AtomicU64,
    /// Those in the queue, or being sent.
    waiting: AtomicU64,
}

impl Tally {
    fn settled(&self, exported: u64, dropped: u64) {
        self.exported.fetch_add(exported, Ordering::Relaxed);
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
        self.waiting.fetch_sub(exported + dropped, Ordering::Relaxed);
    }
}

static EXPORTER: OnceLock<Exporter> = OnceLock::new();

/// Spans are told from [`start`] on; what is left is sent by [`Traces::close`].
#[derive(Debug)]
#[must_use]
pub struct Traces(());

/// Has calls told as spans from now on, if the environment says where to. That it cannot be done is
/// logged, and nothing else.
pub fn start(over: Over) -> Traces {
    let traces = Traces(());
    let (settings, doubts) = match settings::read(|name| std::env::var(name).ok()) {
        Ok(Some(found)) => found,
        Ok(None) => return traces,
        Err(error) => {
            warn!(why = error.to_string(), "calls are not told as traces");
            return traces;
        }
    };
    for doubt in doubts {
        warn!(what = doubt.to_string(), "a variable of OpenTelemetry is not used");
    }
    let wire = match Wire::new(&settings) {
        Ok(wire) => wire,
        Err(why) => {
            warn!(why, "calls are not told as traces");
            return traces;
        }
    };
    let (queue, spans) = mpsc::channel(settings.queue);
    let (closing, to_close) = watch::channel(false);
    let (ends, ended) = threads::sync_channel(1);
    let tally = Arc::<Tally>::default();
    let to = wire.name().to_owned();
    let exporter = Exporter {
        over,
        sampler: settings.sampler,
        queue,
        tally: Arc::clone(&tally),
        closing,
        ended: Mutex::new(ended),
    };
    let sender = Sender { settings, wire, spans, closing: to_close, tally, fails: false };
    let run = move || {
        if let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() {
            runtime.block_on(sender.run());
        }
        let _ = ends.send(());
    };
    if EXPORTER.set(exporter).is_ok() {
        match thread::Builder::new().name("traces".to_owned()).spawn(run) {
            Ok(_) => info!(to, "calls are told as traces"),
            Err(error) => warn!(%error, "calls are not told as traces"),
        }
    }
    traces
}

impl Traces {
    /// Waits until what is left is sent, but not for long.
    pub fn close(self) {
        let Some(exporter) = EXPORTER.get() else { return };
        exporter.closing.send_replace(true);
        let ended = exporter.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(FLUSH_MAX);
        let left = exporter.tally.waiting.load(Ordering::Relaxed);
        let lost = exporter.tally.dropped.load(Ordering::Relaxed) + left;
        if lost > 0 {
            let exported = exporter.tally.exported.load(Ordering::Relaxed);
            warn!(exported, lost, "the collector has not got the spans of all calls");
        }
    }
}

/// Whether calls become spans.
pub fn is_on() -> bool {
    EXPORTER.get().is_some()
}

/// How many spans there were.
pub fn counts() -> Counts {
    let Some(Exporter { tally, .. }) = EXPORTER.get() else { return Counts::default() };
    Counts {
        exported: tally.exported.load(Ordering::Relaxed),
        dropped: tally.dropped.load(Ordering::Relaxed),
    }
}

/// Tells of a call that has ended, unless it is none that becomes a span: those are tool calls, and other
/// requests whose client says which trace they belong to. Answers with the trace that its span is in.
pub fn tell(call: &Summary, route: Option<&str>, marks: &[Mark]) -> Option<String> {
    let exporter = EXPORTER.get()?;
    let parent = call.trace.as_deref();
    if call.tool.is_none() && parent.is_none() {
        return None;
    }
    let mut chance = [0; 24];
    getrandom::fill(&mut chance).ok()?;
    let (trace, own) = chance.split_first_chunk::<16>()?;
    let id = span::Identity {
        trace: parent.map_or(*trace, |parent| parent.trace),
        span: *own.first_chunk::<8>()?,
    };
    if !exporter.sampler.takes(id.trace, parent) {
        return None;
    }
    let span = span::encode(call, &id, exporter.over, route, marks);
    exporter.tally.waiting.fetch_add(1, Ordering::Relaxed);
    if exporter.queue.try_send(span).is_err() {
        exporter.tally.settled(0, 1);
    }
    Some(to_hex(&id.trace))
}

/// The thread's own.
struct Sender {
    settings: Settings,
    wire: Wire,
    spans: mpsc::Receiver<Vec<u8>>,
    closing: watch::Receiver<bool>,
    tally: Arc<Tally>,
    /// The collector has not taken the last ones.
    fails: bool,
}

impl Sender {
    async fn run(mut self) {
        let resource = span::resource(&self.settings, &instance());
        loop {
            let batch = self.gather().await;
            if batch.is_empty() {
                return;
            }
            let request = span::request(&resource, &batch);
            let count = batch.len() as u64;
            drop(batch);
            match self.send(self.wire.packed(request)).await {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    self.tally.settled(count - rejected, rejected);
                    if std::mem::take(&mut self.fails) {
                        info!(to = self.wire.name(), "the collector of traces takes spans again");
                    }
                }
                Err(why) => {
                    self.tally.settled(0, count);
                    if !std::mem::replace(&mut self.fails, true) {
                        let to = self.wire.name();
                        warn!(to, why, "the collector of traces takes no spans; they are left out");
                    }
                }
            }
        }
    }

    fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// What is to be sent together; nothing if it is the end.
    async fn gather(&mut self) -> Vec<Vec<u8>> {
        let mut batch = Vec::new();
        let most = self.settings.batch;
        let mut until = None;
        while batch.len() < most && !self.is_closing() {
            let room = most - batch.len();
            let more = async {
                let come = self.spans.recv_many(&mut batch, room);
                match until {
                    None => Some(come.await),
                    Some(until) => timeout_at(until, come).await.ok(),
                }
            };
            tokio::select! {
                came = more => match came {
                    Some(_) => drop(until.get_or_insert_with(|| Instant::now() + self.settings.delay)),
                    None => return batch,
                },
                _ = self.closing.changed() => {}
            }
        }
        while batch.len() < most
            && let Ok(span) = self.spans.try_recv()
        {
            batch.push(span);
        }
        batch
    }

    /// Sends a request, again and again where the collector may take it later. Answers with how many
    /// spans it has not taken, or why it took none.
    async fn send(&mut self, request: bytes::Bytes) -> Result<u64, String> {
        let until = Instant::now() + self.settings.patience;
        let mut pause = AGAIN;
        loop {
            let within = self.settings.timeout;
            let sent = timeout(within, self.wire.send(request.clone())).await;
            let failure = match sent {
                Ok(Ok(answer)) => return Ok(span::rejected(&answer)),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    self.wire.forget();
                    Failure::later(format!("no answer within {within:?}"))
                }
            };
            // So that not all who were refused come again at once.
            let rest = pause.max(failure.after.unwrap_or_default()) + pause.mul_f64(chance());
            if !failure.again || self.is_closing() || Instant::now() + rest >= until {
                return Err(failure.why);
            }
            tokio::select! {
                () = sleep(rest) => {}
                _ = self.closing.changed() => {}
            }
            pause *= 2;
        }
    }
}

/// A number below a quarter.
fn chance() -> f64 {
    f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX) / 4.0
}

/// A name of this process for collectors: a random UUID.
fn instance() -> String {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        return std::process::id().to_string();
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = to_hex(&bytes);
    for place in [20, 16, 12, 8] {
        text.insert(place, '-');
    }
    text
}
