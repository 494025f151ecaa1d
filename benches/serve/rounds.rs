//! Loads whose cost is measured in short rounds, with one proxy after the other.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::{Ask, Client, Tally};
use crate::loads::{Load, Pace};
use crate::proxies::Target;

/// Maximum number of bytes of one read of a client.
pub(crate) const READ: usize = 64 << 10;

/// The result of one round.
#[derive(Default)]
pub(crate) struct Round {
    /// Microseconds of CPU time per unit.
    pub(crate) cpu: Option<f64>,
    /// Number of units a second.
    pub(crate) rate: f64,
    /// The median time of a unit, in microseconds.
    pub(crate) p50: Option<f64>,
    /// The 99th percentile of the time of a unit, in microseconds.
    pub(crate) p99: Option<f64>,
    /// Number of events that the server sent, or of its answers if it sends no events.
    pub(crate) sent: u64,
    /// Number of events or answers that arrived.
    pub(crate) got: u64,
    /// Number of events that are useless for their client.
    pub(crate) bad: u64,
    /// Number of answers that did not arrive unchanged.
    pub(crate) unanswered: u64,
}

/// Runs one round of a load.
pub(crate) async fn round(load: &Load, target: &Target) -> io::Result<Round> {
    let mut clients = Vec::new();
    for _ in 0..load.clients {
        let mut client = Client::connect(target.address, load.path, None).await?;
        if load.sessions {
            client.begin_session().await?;
        }
        // Connect first, on both sides of a proxy, so that connecting is not measured.
        client.call(&Ask::new("small")).await?;
        clients.push(client);
    }
    match load.pace {
        Pace::Closed(calls) => closed(load, target, clients, calls).await,
        Pace::Open(every, length) => open(load, target, clients, every, length).await,
        Pace::Streams(length) => streams(load, target, clients, length).await,
    }
}

type Answered = io::Result<(Tally, Vec<Duration>)>;

async fn closed(
    load: &Load,
    target: &Target,
    clients: Vec<Client>,
    calls: usize,
) -> io::Result<Round> {
    let (before, begun) = (target.cpu()?, Instant::now());
    let mut tasks: JoinSet<Answered> = JoinSet::new();
    for mut client in clients {
        let ask = load.ask.clone();
        tasks.spawn(async move {
            let (mut tally, mut times) = (Tally::default(), Vec::new());
            for _ in 0..calls {
                let start = Instant::now();
                tally.add(client.call(&ask).await?);
                times.push(start.elapsed());
            }
            Ok((tally, times))
        });
    }
    let (tally, times) = gather(tasks).await?;
    let calls = (load.clients * calls) as u64;
    let units = calls * load.events.max(1);
    let times = if load.events == 0 { times } else { Vec::new() };
    let round = judge(load, calls, tally, times);
    Ok(cost(round, units, begun.elapsed(), before.zip(target.cpu()?)))
}

async fn open(
    load: &Load,
    target: &Target,
    clients: Vec<Client>,
    every: Duration,
    length: Duration,
) -> io::Result<Round> {
    let (before, begun) = (target.cpu()?, Instant::now());
    let calls = (length.as_nanos() / every.as_nanos()) as u32;
    let shift = every / load.clients as u32;
    let mut tasks: JoinSet<Answered> = JoinSet::new();
    for (number, mut client) in clients.into_iter().enumerate() {
        let ask = load.ask.clone();
        let first = begun + shift * number as u32;
        tasks.spawn(async move {
            let (mut tally, mut times) = (Tally::default(), Vec::new());
            for call in 0..calls {
                tokio::time::sleep_until((first + every * call).into()).await;
                let start = Instant::now();
                tally.add(client.call(&ask).await?);
                times.push(start.elapsed());
            }
            Ok((tally, times))
        });
    }
    let (tally, times) = gather(tasks).await?;
    let calls = load.clients as u64 * u64::from(calls);
    let round = judge(load, calls, tally, times);
    Ok(cost(round, calls, begun.elapsed(), before.zip(target.cpu()?)))
}

async fn streams(
    load: &Load,
    target: &Target,
    clients: Vec<Client>,
    length: Duration,
) -> io::Result<Round> {
    let seen = Arc::new(AtomicU64::new(0));
    let mut tasks: JoinSet<Answered> = JoinSet::new();
    for mut client in clients {
        let mut reply = client.begin(&load.ask).await?;
        let seen = seen.clone();
        tasks.spawn(async move {
            let mut done = false;
            while !done {
                let before = reply.tally.events;
                done = client.read(&mut reply, READ).await?;
                seen.fetch_add(reply.tally.events - before, Ordering::Relaxed);
            }
            Ok((reply.tally, Vec::new()))
        });
    }
    let (before, begun) = (target.cpu()?, Instant::now());
    let first = seen.load(Ordering::Relaxed);
    sleep(length).await;
    let (after, time) = (target.cpu()?, begun.elapsed());
    let units = seen.load(Ordering::Relaxed) - first;
    let (mut tally, _) = gather(tasks).await?;
    let delays = std::mem::take(&mut tally.delays);
    let round = judge(load, load.clients as u64, tally, delays);
    Ok(cost(round, units, time, before.zip(after)))
}

async fn gather(mut tasks: JoinSet<Answered>) -> Answered {
    let (mut tally, mut times) = (Tally::default(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (more, some) = done.map_err(io::Error::other)??;
        tally.add(more);
        times.extend(some);
    }
    Ok((tally, times))
}

/// Returns the result of a round of `calls` calls: what arrived, and when.
fn judge(load: &Load, calls: u64, tally: Tally, mut times: Vec<Duration>) -> Round {
    times.sort();
    let part = |part: usize| times.get(times.len() * part / 100).map(|t| t.as_secs_f64() * 1e6);
    let (sent, got) = match load.events {
        0 => (calls, tally.answers),
        events => (calls * events, tally.events),
    };
    Round {
        p50: part(50),
        p99: part(99),
        sent,
        got,
        bad: tally.bad,
        unanswered: calls - tally.answers,
        ..Round::default()
    }
}

fn cost(round: Round, units: u64, time: Duration, cpu: Option<(Duration, Duration)>) -> Round {
    let units = units as f64;
    let cpu = cpu.map(|(before, after)| (after - before).as_secs_f64() * 1e6 / units);
    Round { cpu, rate: units / time.as_secs_f64(), ..round }
}
