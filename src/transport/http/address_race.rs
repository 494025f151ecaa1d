//! Races the addresses of a name: each is tried, and the first that connects is used ("Happy Eyeballs", RFC 8305).

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::sleep;

/// The time after which the next address is tried beside a running attempt ("Connection Attempt Delay", RFC 8305, 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Limit of the addresses of a name that are tried for one connection. Further addresses are not used.
const ADDRESSES_MAX: usize = 16;

/// The family of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Family {
    V4,
    #[default]
    V6,
}

impl Family {
    /// Returns the family of `address`.
    pub(super) fn of(address: SocketAddr) -> Self {
        if address.is_ipv6() { Self::V6 } else { Self::V4 }
    }
}

/// The addresses tried for one connection, in the order in which the attempts began.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Each address, with its error once it has failed.
    tried: Vec<(IpAddr, Option<String>)>,
    /// The most useful of the errors.
    error: Option<io::Error>,
}

impl Attempts {
    fn begin(&mut self, address: SocketAddr) {
        self.tried.push((address.ip(), None));
    }

    fn fail(&mut self, address: SocketAddr, error: io::Error) {
        if let Some(attempt) = self.tried.iter_mut().find(|(tried, _)| *tried == address.ip()) {
            attempt.1 = Some(error.to_string());
        }
        // The error of a server replaces an error of this machine, whichever came first: it says more about the
        // address that the operator has written.
        if self.error.as_ref().is_none_or(|known| is_of_own_side(known) && !is_of_own_side(&error))
        {
            self.error = Some(error);
        }
    }

    fn take_error(&mut self) -> io::Error {
        let nothing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        self.error.take().unwrap_or_else(nothing)
    }
}

/// Whether an error is about this machine's network and not about the server. For example, a machine without IPv6
/// cannot reach any server's IPv6 addresses.
fn is_of_own_side(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), AddrNotAvailable | HostUnreachable | NetworkUnreachable)
}

/// Lists the addresses that were tried, in parentheses; nothing if none was tried. If their errors differ, each has its
/// error.
impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: BTreeSet<_> = self.tried.iter().map(|(_, error)| error).collect();
        for (number, (address, error)) in self.tried.iter().enumerate() {
            f.write_str(if number == 0 { " (tried " } else { ", " })?;
            address.fmt(f)?;
            if errors.len() > 1 {
                write!(f, ": {}", error.as_deref().unwrap_or("no answer"))?;
            }
        }
        f.write_str(if self.tried.is_empty() { "" } else { ")" })
    }
}

/// Returns the addresses in the order in which they are tried: the families alternate, beginning with `first`, and the
/// addresses of a family keep their order, which is that of RFC 6724. At most [`ADDRESSES_MAX`] are returned.
pub(super) fn in_turns(
    addresses: impl IntoIterator<Item = SocketAddr>,
    first: Family,
) -> Vec<SocketAddr> {
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| Family::of(*address) == first);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut order = Vec::new();
    loop {
        let before = order.len();
        // RFC 8305, 4: the families alternate, so that a broken family costs one delay and not one for each address.
        for address in first.next().into_iter().chain(second.next()) {
            if !order.contains(&address) && order.len() < ADDRESSES_MAX {
                order.push(address);
            }
        }
        let is_over = first.as_slice().is_empty() && second.as_slice().is_empty();
        if is_over || (order.len() == before && order.len() == ADDRESSES_MAX) {
            return order;
        }
    }
}

/// Connects to the first of `addresses` that answers. The next address is tried as soon as an attempt fails, or has not
/// succeeded for [`ATTEMPT_DELAY`]. The attempts that lose are dropped.
///
/// # Errors
/// If there is no address, or none can be connected to. `attempts` then contains the addresses and their errors.
pub(super) async fn race<T, F: Future<Output = io::Result<T>>>(
    addresses: Vec<SocketAddr>,
    attempts: &mut Attempts,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<(SocketAddr, T)> {
    let mut untried = addresses.into_iter();
    let mut running = FuturesUnordered::new();
    loop {
        if let Some(address) = untried.next() {
            // Noted before the attempt, so that an error names the address even if it never answers.
            attempts.begin(address);
            let attempt = connect(address);
            running.push(async move { (address, attempt.await) });
        }
        let is_last = untried.as_slice().is_empty();
        let next_is_due = async {
            // No address is left, so only the running attempts can end the race.
            if is_last {
                pending().await
            } else {
                sleep(ATTEMPT_DELAY).await;
            }
        };
        tokio::select! {
            // `biased`: a finished attempt is handled before the next one begins.
            biased;
            finished = running.next() => match finished {
                // The other attempts are dropped with the list, which closes their sockets.
                Some((address, Ok(connection))) => return Ok((address, connection)),
                Some((address, Err(error))) => attempts.fail(address, error),
                // No attempt runs, and no address is left.
                None => return Err(attempts.take_error()),
            },
            () = next_is_due => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::{Instant, timeout};

    use super::*;

    /// How an address of the test behaves.
    #[derive(Clone, Copy)]
    enum Acts {
        Connects(u64),
        Refuses(u64),
        Unreachable,
        Silent,
    }

    fn address(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 443)
    }

    /// Runs a race. Returns the winner or the error, the duration in milliseconds, when each address was tried, and the
    /// text for errors.
    async fn run(hosts: &[(&str, Acts)]) -> (String, u128, Vec<u128>, String) {
        let (began, starts) = (Instant::now(), Mutex::new(Vec::new()));
        let acts = |tried: SocketAddr| {
            starts.lock().unwrap().push(began.elapsed().as_millis());
            let acts = hosts.iter().find(|(text, _)| address(text) == tried).unwrap().1;
            async move {
                match acts {
                    Acts::Connects(after) => {
                        sleep(Duration::from_millis(after)).await;
                        Ok(())
                    }
                    Acts::Refuses(after) => {
                        sleep(Duration::from_millis(after)).await;
                        Err(io::Error::new(io::ErrorKind::ConnectionRefused, "refused"))
                    }
                    Acts::Unreachable => {
                        Err(io::Error::new(io::ErrorKind::NetworkUnreachable, "unreachable"))
                    }
                    Acts::Silent => pending().await,
                }
            }
        };
        let mut attempts = Attempts::default();
        let addresses = hosts.iter().map(|(text, _)| address(text)).collect();
        let race = race(addresses, &mut attempts, acts);
        let result = match timeout(Duration::from_secs(10), race).await {
            Ok(Ok((winner, ()))) => winner.ip().to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timeout".to_owned(),
        };
        (result, began.elapsed().as_millis(), starts.into_inner().unwrap(), attempts.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_never_answers_delays_the_connection_by_250_ms() {
        let hosts = [("2001:db8::1", Acts::Silent), ("192.0.2.1", Acts::Connects(20))];
        let (winner, time, starts, _) = run(&hosts).await;
        assert_eq!((&*winner, time), ("192.0.2.1", 270));
        assert_eq!(starts, [0, 250]);
        let hosts = [
            ("2001:db8::1", Acts::Silent),
            ("192.0.2.1", Acts::Silent),
            ("2001:db8::2", Acts::Connects(20)),
        ];
        let (winner, time, starts, _) = run(&hosts).await;
        assert_eq!((&*winner, time), ("2001:db8::2", 520));
        assert_eq!(starts, [0, 250, 500]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_refuses_is_followed_by_the_next_at_once() {
        for refused in ["192.0.2.1", "2001:db8::1"] {
            let good = if refused == "192.0.2.1" { "2001:db8::1" } else { "192.0.2.1" };
            let hosts = [(refused, Acts::Refuses(30)), (good, Acts::Connects(5))];
            let (winner, time, starts, _) = run(&hosts).await;
            assert_eq!((&*winner, time), (good, 35));
            assert_eq!(starts, [0, 30]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_address_still_wins_if_the_others_are_slower() {
        let hosts = [("2001:db8::1", Acts::Connects(400)), ("192.0.2.1", Acts::Connects(300))];
        let (winner, time, ..) = run(&hosts).await;
        assert_eq!((&*winner, time), ("2001:db8::1", 400));
        // An only address may take as long as it needs.
        let (winner, time, ..) = run(&[("192.0.2.1", Acts::Connects(4000))]).await;
        assert_eq!((&*winner, time), ("192.0.2.1", 4000));
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_names_the_addresses_and_tells_of_the_server() {
        let hosts = [("2001:db8::1", Acts::Unreachable), ("192.0.2.1", Acts::Refuses(1))];
        let (error, .., tried) = run(&hosts).await;
        assert_eq!(error, "refused");
        assert_eq!(tried, " (tried 2001:db8::1: unreachable, 192.0.2.1: refused)");
        let hosts = [("192.0.2.1", Acts::Refuses(1)), ("2001:db8::1", Acts::Unreachable)];
        assert_eq!(run(&hosts).await.0, "refused");
        let hosts = [("192.0.2.1", Acts::Refuses(1)), ("192.0.2.2", Acts::Refuses(1))];
        assert_eq!(run(&hosts).await.3, " (tried 192.0.2.1, 192.0.2.2)");
        let hosts = [("192.0.2.1", Acts::Refuses(1)), ("192.0.2.2", Acts::Silent)];
        let (error, time, _, tried) = run(&hosts).await;
        assert_eq!((&*error, time), ("timeout", 10_000));
        assert_eq!(tried, " (tried 192.0.2.1: refused, 192.0.2.2: no answer)");
        let (error, .., tried) = run(&[]).await;
        assert_eq!((&*error, &*tried), ("the name has no address", ""));
    }

    #[test]
    fn families_take_turns_and_the_addresses_of_a_family_keep_their_order() {
        let found = ["192.0.2.1", "192.0.2.2", "192.0.2.2", "2001:db8::1", "192.0.2.3"];
        let order = |first| {
            let order = in_turns(found.map(address), first);
            order.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(Family::V6), "2001:db8::1 192.0.2.1 192.0.2.2 192.0.2.3");
        assert_eq!(order(Family::V4), "192.0.2.1 2001:db8::1 192.0.2.2 192.0.2.3");
    }

    #[test]
    fn the_addresses_of_a_name_are_bounded() {
        let many = (0..1000_u16).map(|number| {
            let family = if number % 7 == 0 {
                format!("2001:db8::{number:x}")
            } else {
                format!("192.0.{}.{}", number / 256, number % 256)
            };
            address(&family)
        });
        assert_eq!(in_turns(many, Family::V6).len(), ADDRESSES_MAX);
        assert!(in_turns([], Family::V6).is_empty());
    }
}
