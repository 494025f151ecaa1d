//! How much memory open streams take, and how old messages are when a slow client reads them.

use std::io;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::client::{Ask, Client};
use crate::proxies::Target;

/// The wait before the memory of streams is read.
const REST: Duration = Duration::from_secs(3);
/// For how long the clients that read nothing are flooded.
const FLOODED: Duration = Duration::from_secs(6);
/// Requested size of the system's buffer for a client that does not keep up; the system takes twice as much.
const SMALL_BUFFER: u32 = 8 << 10;

/// Number of events a second for a slow client.
const RATE: u64 = 5000;
/// The interval at which a slow client reads.
const TICK: Duration = Duration::from_millis(10);
/// Number of bytes that a slow client reads each time: a tenth of what is sent, at 210 bytes an event.
const PORTION: usize = 5 * 210;
/// Number of seconds for which a slow client reads.
const SECONDS: u64 = 10;
/// Number of slow clients.
const SLOW: usize = 4;

/// Makes some calls first, so that the memory that a proxy always needs is not counted. Returns the memory used.
async fn warm(target: &Target) -> io::Result<f64> {
    for _ in 0..100 {
        let mut client = Client::connect(target.address, "/mcp", None).await?;
        client.call(&Ask::new("small")).await?;
        client.call(&Ask::flood("own", 64, 32, 32)).await?;
    }
    sleep(Duration::from_millis(500)).await;
    target.memory()
}

/// Returns the kilobytes per stream of `count` streams without messages.
pub(crate) async fn idle(target: &Target, count: usize) -> io::Result<f64> {
    let before = warm(target).await?;
    let mut open = Vec::new();
    for _ in 0..count {
        let mut client = Client::connect(target.address, "/mcp", None).await?;
        let reply = client.begin(&Ask::new("silent")).await?;
        open.push((client, reply));
    }
    sleep(REST).await;
    Ok((target.memory()? - before) / count as f64)
}

/// Returns the maximum of kilobytes per stream, while `count` clients read nothing of a flood.
pub(crate) async fn stalled(target: &Target, form: &str, count: usize) -> io::Result<f64> {
    let before = warm(target).await?;
    let mut open = Vec::new();
    for _ in 0..count {
        let buffer = Some(SMALL_BUFFER);
        let mut client = Client::connect(target.address, "/mcp", buffer).await?;
        client.begin(&Ask::flood(form, u64::MAX, 32, 32)).await?;
        open.push(client);
    }
    let begun = Instant::now();
    let mut most = 0.0_f64;
    while begun.elapsed() < FLOODED {
        sleep(Duration::from_millis(100)).await;
        most = most.max(target.memory()?);
    }
    Ok((most - before) / count as f64)
}

/// Returns the maximum age of what a client reads in each second, in milliseconds. The client reads a tenth of what is
/// sent.
pub(crate) async fn slow(target: &Target) -> io::Result<Vec<f64>> {
    let mut clients = Vec::new();
    let ask = Ask::timed("own", RATE, 1, RATE * 3600);
    for _ in 0..SLOW {
        let mut client = Client::connect(target.address, "/mcp", Some(SMALL_BUFFER)).await?;
        let reply = client.begin(&ask).await?;
        clients.push((client, reply));
    }
    let begun = Instant::now();
    let mut worst = Vec::new();
    for tick in 1.. {
        for (client, reply) in &mut clients {
            // A client that has nothing to read now waits for the next tick.
            let read = tokio::time::timeout(TICK / 10, client.read(reply, PORTION)).await;
            if read.unwrap_or(Ok(false))? {
                return Err(io::Error::other("a stream ended too early"));
            }
        }
        let due = begun + TICK * tick;
        if begun.elapsed() >= Duration::from_secs(worst.len() as u64 + 1) {
            let tallies = clients.iter_mut().map(|(_, reply)| &mut reply.tally);
            let delays = tallies.flat_map(|tally| std::mem::take(&mut tally.delays));
            worst.push(delays.max().map_or(f64::INFINITY, |age| age.as_secs_f64() * 1e3));
        }
        if worst.len() as u64 >= SECONDS {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
    }
    if clients.iter().any(|(_, reply)| reply.tally.bad > 0) {
        return Err(io::Error::other("progress arrived that a client has no use for"));
    }
    Ok(worst)
}
