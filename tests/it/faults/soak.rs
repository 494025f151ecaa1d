//! Many faults at once before one `serve`, again and again: its memory and its descriptors do not grow.
//!
//! A few rounds in the ordinary test program, and `SOAK_MINUTES` for `tests/soak`, which measures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::scene::keys;
use super::{LASTING, children};
use crate::http::serve::proxy::{Proxy, Start};
use crate::pairs::Pair;
use crate::pairs::Transport::{self, Http, Sse, Stdio};
use crate::pairs::server::Server;
use crate::support::until;

/// The pairs of `serve`.
const PAIRS: [(Transport, Transport); 6] =
    [(Http, Stdio), (Http, Http), (Http, Sse), (Sse, Stdio), (Sse, Http), (Sse, Sse)];

/// Rounds of each pair where nothing is measured.
const ROUNDS: usize = 2;

/// Nothing is measured before, and not before half of the time is over: what is allocated once is there.
const WARM_UP: Duration = Duration::from_secs(5 * 60);

/// The time between two looks.
const LOOK: Duration = Duration::from_secs(2);

/// Growth that is none, in MB an hour.
const SLOPE_MAX: f64 = 1.0;

/// A look at the process, in hours since the first one, MB and files.
struct Look {
    hours: f64,
    megabytes: f64,
    descriptors: usize,
}

/// Tells everybody to stop, also if this thread panics.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The line through the looks with the least squares, in MB an hour.
fn slope(looks: &[Look]) -> f64 {
    let count = looks.len() as f64;
    let hours = looks.iter().map(|look| look.hours).sum::<f64>() / count;
    let megabytes = looks.iter().map(|look| look.megabytes).sum::<f64>() / count;
    let both = looks.iter().map(|look| (look.hours - hours) * (look.megabytes - megabytes));
    let square = looks.iter().map(|look| (look.hours - hours).powi(2));
    both.sum::<f64>() / square.sum::<f64>()
}

/// Plays faults on a pair until it is time; each pair begins with another fault.
fn load(pair: &mut Pair, first: usize, played: &AtomicUsize, is_over: impl Fn(usize) -> bool) {
    let is_child = pair.server.transport() == Stdio;
    // Nobody ends the session of a client of Streamable HTTP that has vanished before such servers.
    let stays = pair.client == Http && pair.server.transport() == Sse;
    let mut faults: Vec<_> =
        LASTING.iter().filter(|(leaves, _)| !(stays && *leaves)).map(|(_, fault)| *fault).collect();
    if is_child {
        faults.push(children::reads_nothing);
    }
    let mut rounds = 0;
    while !is_over(rounds) {
        // A step that has no common divisor with their number would do; neighbours are as good.
        faults[(first + rounds) % faults.len()](pair);
        rounds += 1;
        played.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn memory_and_descriptors_stay_as_they_are() {
    let minutes: Option<f64> =
        std::env::var("SOAK_MINUTES").ok().map(|minutes| minutes.parse().unwrap());
    let time = minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let servers = PAIRS.map(|(_, server)| Server::start(server));
    let routes = servers.iter().enumerate().map(|(at, server)| {
        let keys = format!("heartbeat.enabled = false\n{}", keys(server.transport()));
        format!("[[route]]\npath = \"/{at}\"\n{}\n{keys}\n", server.route())
    });
    let proxy = Arc::new(Proxy::serving(&Start::default(), &routes.collect::<String>()));
    let before = proxy.descriptors();
    let (begun, stop, played) = (Instant::now(), AtomicBool::new(false), AtomicUsize::new(0));
    let mut looks = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = PAIRS
            .into_iter()
            .zip(servers)
            .enumerate()
            .map(|(at, ((client, _), server))| {
                let mut pair =
                    Pair::behind(client, server, Some(Arc::clone(&proxy)), format!("/{at}"));
                let (stop, played) = (&stop, &played);
                scope.spawn(move || {
                    let _stops = Stops(stop);
                    load(&mut pair, at, played, |rounds| match time {
                        Some(time) => stop.load(Ordering::Relaxed) || begun.elapsed() >= time,
                        None => rounds == ROUNDS,
                    });
                })
            })
            .collect();
        while time.is_some() && !threads.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(LOOK);
            looks.push(Look {
                hours: begun.elapsed().as_secs_f64() / 3600.0,
                megabytes: proxy.status("VmRSS") as f64 / 1024.0,
                descriptors: proxy.descriptors(),
            });
        }
    });
    until("no server is left", || proxy.servers() == 0);
    // The pipe to the watchdog.
    until("no connection and no pipe is left", || proxy.descriptors() <= before + 1);
    assert!(!proxy.log().contains("panic"), "{}", proxy.log());
    let Some(time) = time else { return };
    let warm_up = WARM_UP.min(time / 2).as_secs_f64() / 3600.0;
    let cold = looks.iter().take_while(|look| look.hours < warm_up).count();
    let slope = slope(&looks[cold..]);
    let (first, last) = (&looks[cold], looks.last().unwrap());
    let most = looks.iter().map(|look| look.descriptors).max();
    eprintln!(
        "faults played {}\nmemory {:.1} MB after {:.0} s, {:.1} MB at the end, slope {slope:+.2} MB/h\n\
         descriptors {before} at the start, at most {}, {} at the end",
        played.load(Ordering::Relaxed),
        first.megabytes,
        first.hours * 3600.0,
        last.megabytes,
        most.unwrap(),
        proxy.descriptors(),
    );
    assert!(slope <= SLOPE_MAX, "the memory grows by {slope:.2} MB an hour");
}
