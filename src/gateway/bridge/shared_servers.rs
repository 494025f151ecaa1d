//! Servers that clients of 2026-07-28 share: one for each route and `Authorization`, started with the first request,
//! and started again after it has died.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header;
use http::request::Parts;
use tokio::time::{Instant, sleep_until};

use super::session::BridgeSession;
use crate::transport::clock::growing_pause;
use crate::transport::http::client_name::ClientName;

/// The pause before a server that has died once is started again. The pause doubles with each further death.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest pause before a server that keeps dying is started again. Requests wait until the pause is over.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The interval of checks whether an ending server has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server that has run for this time is healthy: if it dies later, its pause begins anew.
const LIVED: Duration = Duration::from_secs(60);

/// Limit of the callers for which the death of a server is remembered, and with it the pause before a restart.
const DEAD_MAX: usize = 1000;

/// The name of the certificate and the values of `Authorization`, concatenated. They are compared in full, because the
/// hashes of two callers could be equal.
type Caller = Box<[u8]>;

struct SharedServer {
    session: Arc<BridgeSession>,
    began: Instant,
    /// The number of the server's recent failures, and the time of the last one.
    deaths: u32,
    died: Option<Instant>,
}

/// The servers of a route that clients share.
#[derive(Default)]
pub(crate) struct SharedServers {
    known: Mutex<HashMap<Caller, SharedServer>>,
}

/// The course of a shared server that has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterDeath {
    /// It is started again.
    Restarts,
    Stays,
}

/// The state of the server that a caller shares.
enum SharedLookup {
    ServerPermit(Arc<BridgeSession>),
    /// The server may be started from this moment on.
    At(Instant),
    /// The server has died, and is not started again yet.
    Dead,
    None,
}

impl SharedServers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Caller, SharedServer>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(
        known: &HashMap<Caller, SharedServer>,
        caller: &Caller,
        after_death: AfterDeath,
    ) -> SharedLookup {
        let Some(entry) = known.get(caller) else { return SharedLookup::None };
        if !entry.session.is_over() {
            return SharedLookup::ServerPermit(Arc::clone(&entry.session));
        }
        match entry.died {
            Some(_) if after_death == AfterDeath::Stays => SharedLookup::Dead,
            Some(died) => SharedLookup::At(died + pause(entry.deaths)),
            None if entry.session.was_ended() => SharedLookup::None,
            // The server is being stopped, with all that it has started. Look again until it has ended.
            None => SharedLookup::At(Instant::now() + LOOK_EVERY),
        }
    }

    /// Returns the session of the server that this caller shares. `start` begins a session if there is none; its
    /// argument is true if the server has run before and died. `dead` is the error for a server that has died and must
    /// not be started again.
    pub(crate) async fn session_of<E>(
        &self,
        caller: Caller,
        after_death: AfterDeath,
        dead: impl Fn() -> E,
        start: impl Fn(bool) -> Result<Arc<BridgeSession>, E>,
    ) -> Result<Arc<BridgeSession>, E> {
        loop {
            let at = {
                let mut known = self.lock();
                match Self::find(&known, &caller, after_death) {
                    SharedLookup::ServerPermit(session) => return Ok(session),
                    SharedLookup::At(at) if at > Instant::now() => at,
                    SharedLookup::Dead => return Err(dead()),
                    found => {
                        // Started under the lock, so that two concurrent requests do not start two servers.
                        let session = start(matches!(found, SharedLookup::At(_)))?;
                        let deaths = known.get(&caller).map_or(0, |before| before.deaths);
                        let began = Instant::now();
                        let entry = SharedServer {
                            session: Arc::clone(&session),
                            began,
                            deaths,
                            died: None,
                        };
                        known.insert(caller, entry);
                        return Ok(session);
                    }
                }
            };
            // The lock is not held here, so that other callers can start their servers in the meantime.
            sleep_until(at).await;
        }
    }

    /// Notes that the server of a session has ended.
    fn ended(&self, session: &Arc<BridgeSession>) {
        let mut known = self.lock();
        let own = |(_, entry): &(&Caller, &mut SharedServer)| Arc::ptr_eq(&entry.session, session);
        let Some((caller, entry)) = known.iter_mut().find(own) else { return };
        if session.was_ended() {
            let caller = caller.clone();
            known.remove(&caller);
            return;
        }
        let lived = entry.began.elapsed();
        // A server that has run for a while did not fail at its start, so the pause is reset.
        entry.deaths = if lived >= LIVED { 1 } else { entry.deaths.saturating_add(1) };
        entry.died = Some(Instant::now());
        // Only servers that have ended are removed: a running server must stay available to its callers.
        if known.len() > DEAD_MAX {
            known.retain(|_, entry| !entry.session.is_over());
        }
    }
}

/// Notes on drop that the server of a session has ended, for any cause.
pub(crate) struct EndNotice {
    pub(crate) servers: Arc<SharedServers>,
    pub(crate) session: Arc<BridgeSession>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.servers.ended(&self.session);
    }
}

fn pause(deaths: u32) -> Duration {
    growing_pause(PAUSE, PAUSE_MAX, deaths.saturating_sub(1))
}

/// Returns the key by which clients share a server: their certificate, else their `Authorization`. A server over HTTP
/// gets the `Authorization` of its first client, so its key has both.
pub(crate) fn caller(parts: &Parts, is_over_http: bool) -> Caller {
    let name = parts.extensions.get::<ClientName>();
    let certificate = name.map(|name| [&[1], name.as_str().as_bytes(), &[0]].concat());
    let is_counted = is_over_http || certificate.is_none();
    let values = parts.headers.get_all(header::AUTHORIZATION).iter().filter(|_| is_counted);
    // No header value contains the bytes 0 and 1: one part cannot imitate another.
    let values = values.flat_map(|value| value.as_bytes().iter().copied().chain([0]));
    certificate.into_iter().flatten().chain(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_up_to_a_limit() {
        let pauses = [1, 2, 3, 6, 7, 1000].map(|deaths| pause(deaths).as_millis());
        assert_eq!(pauses, [500, 1000, 2000, 16_000, 30_000, 30_000]);
    }

    #[test]
    fn callers_are_told_apart_by_all_they_present() {
        let of = |values: &[&str]| caller(&parts(None, values), false);
        assert_eq!(of(&["a"]), of(&["a"]));
        for (one, other) in [(&[][..], &["a"][..]), (&["a"], &["b"]), (&["a", "b"], &["ab"])] {
            assert_ne!(of(one), of(other));
        }
    }

    #[test]
    fn a_certificate_says_who_a_client_is_and_its_token_counts_only_over_http() {
        let (ada, bob) = (certificate("ada.example.com"), certificate("bob.example.com"));
        for is_over_http in [false, true] {
            let of = |name: Option<&ClientName>, token: &str| {
                caller(&parts(name, &[token]), is_over_http)
            };
            assert_ne!(of(Some(&ada), "a"), of(Some(&bob), "a"));
            assert_ne!(of(Some(&ada), "a"), of(None, "a"));
            assert_eq!(of(Some(&ada), "a") == of(Some(&ada), "b"), !is_over_http);
        }
        // No header value gives the same key as a certificate.
        let spelt = caller(&parts(None, &["", ada.as_str()]), false);
        assert_ne!(spelt, caller(&parts(Some(&ada), &[]), false));
    }

    fn certificate(name: &str) -> ClientName {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        ClientName::of_certificate(made.cert.der())
    }

    fn parts(name: Option<&ClientName>, values: &[&str]) -> Parts {
        let mut request = http::Request::new(());
        for value in values {
            request.headers_mut().append(header::AUTHORIZATION, value.parse().unwrap());
        }
        if let Some(name) = name {
            request.extensions_mut().insert(name.clone());
        }
        request.into_parts().0
    }
}
