//! Many faults at once before one `serve`, again and again: its memory and its descriptors do not grow.
//!
//! A few rounds in the ordinary test program, and `SOAK_MINUTES` for `tests/soak`, which measures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::scene::keys;
use super::{LASTING, children};
use crate::http::serve::crowd::Heap;
use crate::http::serve::proxy::{Proxy, Start};
use crate::pairs::Pair;
use crate::pairs::Transport::{self, Http, Sse, Stdio};
use crate::pairs::server::Server;
use crate::support::until;

/// The pairs of `serve`.
const PAIRS: [(&str, Transport, Transport); 6] = [
    ("http_to_stdio", Http, Stdio),
    ("http_to_http", Http, Http),
    ("http_to_sse", Http, Sse),
    ("sse_to_stdio", Sse, Stdio),
    ("sse_to_http", Sse, Http),
    ("sse_to_sse", Sse, Sse),
];

/// Rounds of each pair where nothing is measured.
const ROUNDS: usize = 2;

/// The measurement begins after this time, and after half of the test: memory that is allocated only once is then
/// allocated.
const WARM_UP: Duration = Duration::from_secs(5 * 60);

/// The time between two looks, for which all faults rest.
const LOOK: Duration = Duration::from_secs(20);

/// Growth of the memory in use that counts as none, in MB per hour.
const SLOPE_MAX: f64 = 1.0;

/// Growth after the first half of a run that ends in the warm-up, in MB. Tables still fill then, so that its
/// slope says nothing.
const WARM_UP_GROWTH_MAX: f64 = 0.5;

/// Memory that the allocator may keep beyond the value after the warm-up, in MB.
const KEPT_MAX: f64 = 16.0;

/// Milepost remembers so many sessions of a server of Streamable HTTP whose clients have left without a word:
/// few, so that their number is reached in the warm-up.
const REMEMBERED: &str = "max_sessions = 128";

/// The memory of the process while no client is connected, in hours since the start and in MB.
struct Look {
    hours: f64,
    /// As the system counts it.
    resident: f64,
    /// As its allocator counts it.
    in_use: f64,
}

/// Tells all threads to stop, even if this thread panics.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The line through a figure of the looks with the least squares, in MB an hour.
fn slope(looks: &[Look], figure: fn(&Look) -> f64) -> f64 {
    let count = looks.len() as f64;
    let hours = looks.iter().map(|look| look.hours).sum::<f64>() / count;
    let megabytes = looks.iter().map(figure).sum::<f64>() / count;
    let both = looks.iter().map(|look| (look.hours - hours) * (figure(look) - megabytes));
    let square = looks.iter().map(|look| (look.hours - hours).powi(2));
    both.sum::<f64>() / square.sum::<f64>()
}

/// Plays faults on a pair until it is time; each pair begins with another fault.
fn load(
    pair: &mut Pair,
    first: usize,
    rest: &RwLock<()>,
    is_over: impl Fn(usize) -> bool,
) -> usize {
    let is_child = pair.server.transport() == Stdio;
    // With such servers, the session of a client of Streamable HTTP that has vanished is not ended.
    let stays = pair.client == Http && pair.server.transport() == Sse;
    let mut faults: Vec<_> =
        LASTING.iter().filter(|(leaves, _)| !(stays && *leaves)).map(|(_, fault)| *fault).collect();
    if is_child {
        faults.push(children::reads_nothing);
    }
    let mut rounds = 0;
    while !is_over(rounds) {
        let plays = rest.read().unwrap();
        faults[(first + rounds) % faults.len()](pair);
        rounds += 1;
        drop(plays);
    }
    rounds
}

#[test]
fn memory_and_descriptors_stay_as_they_are() {
    let minutes: Option<f64> =
        std::env::var("SOAK_MINUTES").ok().map(|minutes| minutes.parse().unwrap());
    let time = minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let wanted = std::env::var("SOAK_PAIR").unwrap_or_default();
    let pairs: Vec<_> = PAIRS.into_iter().filter(|(name, ..)| name.contains(&wanted)).collect();
    let servers: Vec<_> = pairs.iter().map(|(.., server)| Server::start(*server)).collect();
    let routes = servers.iter().enumerate().map(|(at, server)| {
        let remembered = if server.transport() == Http { REMEMBERED } else { "" };
        let keys = keys(server.transport());
        let keys = format!("heartbeat.enabled = false\n{keys}\n{remembered}");
        format!("[[route]]\npath = \"/{at}\"\n{}\n{keys}\n", server.route())
    });
    let heap = Heap::build();
    let start = Start { variables: &heap.variables(), ..Start::default() };
    let proxy = Arc::new(Proxy::serving(&start, &routes.collect::<String>()));
    // One more descriptor for the pipe to the watchdog, which starts with the first server.
    let descriptors = proxy.descriptors() + 1;
    let (begun, stop, rest) = (Instant::now(), AtomicBool::new(false), RwLock::new(()));
    let mut looks = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .into_iter()
            .zip(servers)
            .enumerate()
            .map(|(at, ((_, client, _), server))| {
                let mut pair =
                    Pair::behind(client, server, Some(Arc::clone(&proxy)), format!("/{at}"));
                let (stop, rest) = (&stop, &rest);
                scope.spawn(move || {
                    let _stops = Stops(stop);
                    load(&mut pair, at, rest, |rounds| match time {
                        Some(time) => stop.load(Ordering::Relaxed) || begun.elapsed() >= time,
                        None => rounds == ROUNDS,
                    })
                })
            })
            .collect();
        while time.is_some() && !threads.iter().any(ScopedJoinHandle::is_finished) {
            thread::sleep(LOOK);
            let rests = rest.write();
            looks.push(look(&proxy, &heap, descriptors, begun));
            drop(rests);
        }
        let played: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        eprintln!("{played} faults");
    });
    looks.push(look(&proxy, &heap, descriptors, begun));
    assert!(!proxy.log().contains("panic"), "{}", proxy.log());
    let Some(time) = time else { return };
    let warm_up = WARM_UP.min(time / 2).as_secs_f64() / 3600.0;
    let warm = &looks[looks.iter().take_while(|look| look.hours < warm_up).count()..];
    let slopes = [slope(warm, |look| look.resident), slope(warm, |look| look.in_use)];
    eprintln!("MB an hour: {:+.2} resident, {:+.2} in use", slopes[0], slopes[1]);
    let growth = warm[warm.len() - 1].in_use - warm[0].in_use;
    let may_grow = if time < 2 * WARM_UP { WARM_UP_GROWTH_MAX } else { 0.0 };
    assert!(slopes[1] <= SLOPE_MAX || growth <= may_grow, "the memory grows by {growth:.2} MB");
    let kept = warm[warm.len() - 1].resident - warm[0].resident;
    assert!(kept <= KEPT_MAX, "{kept:.1} MB more are kept");
}

/// Measures after all clients have disconnected and no call is open.
#[track_caller]
fn look(proxy: &Proxy, heap: &Heap, descriptors: usize, begun: Instant) -> Look {
    until("no server is left", || proxy.servers() == 0);
    until("no connection and no pipe is left", || proxy.descriptors() <= descriptors);
    let look = Look {
        hours: begun.elapsed().as_secs_f64() / 3600.0,
        resident: proxy.status("VmRSS") as f64 / 1024.0,
        in_use: heap.in_use() as f64 / f64::from(1 << 20),
    };
    eprintln!(
        "{:4.0} s: {:.2} MB resident, {:.3} MB in use, {} descriptors",
        look.hours * 3600.0,
        look.resident,
        look.in_use,
        proxy.descriptors()
    );
    look
}
