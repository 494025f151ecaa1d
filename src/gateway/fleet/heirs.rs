//! Decides which replica takes over a session whose owner has ended: with a store that all replicas can reach, if the
//! settings name one.
//!
//! Without a store each replica that gets a request of such a session serves it, without heartbeats. With a store one
//! replica becomes the heir. It serves the session as an owner does, and the others pass requests on to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use ring::digest::{SHA256, digest};
use tokio::time::{Instant, interval, timeout};

use super::seal::Owner;
use crate::transport::tasks;

/// Limit of the sessions whose heirs a replica remembers. Beyond it heirs that are other replicas are forgotten, and
/// the store is asked for each request.
const HEIRS_MAX: usize = 1 << 16;

/// Deadline for an answer of the store to a request.
const SETTLE_MAX: Duration = Duration::from_millis(50);

/// The time for which the store is not asked after it has failed.
const STORE_DOWN_FOR: Duration = Duration::from_secs(1);

/// The time for which an heir that is another replica is remembered.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The time after the last request of a session for which this replica stays its heir.
const HEIR_FOR: Duration = Duration::from_secs(60 * 60);

/// The interval at which a replica renews its inherited sessions in the store: a third of [`OWNED_FOR`], so that two
/// failed renewals do not lose a session.
const RENEW_EVERY: Duration = Duration::from_secs(20);

/// The time for which an entry in the store is valid without a renewal.
pub const OWNED_FOR: Duration = Duration::from_secs(60);

/// The name of a session in the store. It is a digest, so that the store does not reveal the session's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    hash: [u8; 16],
}

impl SessionKey {
    /// Returns the name of a route's session, made of the id that the server gave.
    pub fn of(route: &str, id: &[u8]) -> Self {
        let whole = digest(&SHA256, &[route.as_bytes(), &[0], id].concat());
        let mut key = [0; 16];
        key.copy_from_slice(&whole.as_ref()[..16]);
        Self { hash: key }
    }

    /// Returns the name as text: 32 hexadecimal digits.
    pub fn text(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.hash))
    }
}

/// A replica's claim to serve a session whose owner has ended.
#[derive(Debug, Clone, Copy)]
pub struct HeirClaim {
    /// The session.
    pub session: SessionKey,
    /// The replica that claims the session.
    pub claimant: Owner,
    /// An earlier heir of the session, which has ended too.
    pub gone: Option<Owner>,
}

/// A store that all replicas can reach, in which only one claim to a session succeeds.
pub trait OwnerStore: Send + Sync + 'static {
    /// Settles a claim: returns the replica that serves the session from now on, which is the claimant if no other
    /// replica has it. `None` if the store does not answer.
    fn settle(&self, claim: HeirClaim) -> BoxFuture<'static, Option<Owner>>;

    /// Renews the sessions of a replica, as far as their entries still belong to it. Does not wait for the result.
    fn renew(&self, owner: Owner, sessions: Vec<SessionKey>);
}

/// The replica that serves a session whose owner has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heir {
    /// This replica, which serves the session as an owner does.
    Me,
    /// Another replica.
    Other(Owner),
    /// Not decided: this replica serves the request, and others may do so at the same time.
    Unknown,
}

/// The heir of a session. `at`: the time of the session's last request if the heir is this replica, else the time when
/// the store was asked.
#[derive(Debug, Clone, Copy)]
struct KnownHeir {
    owner: Owner,
    at: Instant,
}

type KnownHeirs = Mutex<HashMap<SessionKey, KnownHeir>>;

/// The heirs of sessions, as this replica knows them.
pub(super) struct Heirs {
    me: Owner,
    store: Arc<dyn OwnerStore>,
    known: Arc<KnownHeirs>,
    down_until: Mutex<Option<Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heirs {
    /// Returns heirs that a store decides about, and starts a task that renews the sessions that this replica inherits.
    pub(super) fn of(me: Owner, store: Arc<dyn OwnerStore>) -> Self {
        let known = Arc::<KnownHeirs>::default();
        // `Weak`: the task ends with the replica's part in the fleet.
        tasks::spawn(renew(me, Arc::downgrade(&known), Arc::clone(&store)));
        Self { me, store, known, down_until: Mutex::default() }
    }

    /// Whether this replica has inherited a session. The question counts as a use of the session.
    pub(super) fn is_mine(&self, session: SessionKey) -> bool {
        let mut known = lock(&self.known);
        let mine = known.get_mut(&session).filter(|known| known.owner == self.me);
        mine.map(|known| known.at = Instant::now()).is_some()
    }

    /// Returns the replica that serves a session. `gone`: an earlier heir that cannot be reached.
    pub(super) async fn settle(&self, session: SessionKey, gone: Option<Owner>) -> Heir {
        let now = Instant::now();
        if let Some(known) = lock(&self.known).get(&session)
            // An heir that has ended is ignored, even if it is remembered.
            && Some(known.owner) != gone
            && (known.owner == self.me || now < known.at + REMEMBERED)
        {
            return self.heir(known.owner);
        }
        if lock(&self.down_until).is_some_and(|until| now < until) {
            return Heir::Unknown;
        }
        let claim = HeirClaim { session, claimant: self.me, gone };
        let Ok(Some(owner)) = timeout(SETTLE_MAX, self.store.settle(claim)).await else {
            // An unreachable store must not delay each request, so it is not asked for some time.
            *lock(&self.down_until) = Some(Instant::now() + STORE_DOWN_FOR);
            return Heir::Unknown;
        };
        self.remember(session, KnownHeir { owner, at: Instant::now() });
        self.heir(owner)
    }

    fn heir(&self, owner: Owner) -> Heir {
        if owner == self.me { Heir::Me } else { Heir::Other(owner) }
    }

    fn remember(&self, session: SessionKey, heir: KnownHeir) {
        let mut known = lock(&self.known);
        if known.len() >= HEIRS_MAX {
            // Sessions that this replica has inherited stay in the table, because they must be renewed.
            known.retain(|_, known| known.owner == self.me);
        }
        if known.len() < HEIRS_MAX {
            known.insert(session, heir);
        }
    }
}

/// Renews the inherited sessions that were used recently, and forgets the others.
async fn renew(me: Owner, known: Weak<KnownHeirs>, store: Arc<dyn OwnerStore>) {
    let mut ticks = interval(RENEW_EVERY);
    loop {
        ticks.tick().await;
        let Some(known) = known.upgrade() else { return };
        let now = Instant::now();
        let mine: Vec<SessionKey> = {
            let mut known = lock(&known);
            known.retain(|_, known| {
                let for_ = if known.owner == me { HEIR_FOR } else { REMEMBERED };
                now < known.at + for_
            });
            known.iter().filter(|(_, known)| known.owner == me).map(|(key, _)| *key).collect()
        };
        if !mine.is_empty() {
            store.renew(me, mine);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use futures::FutureExt;

    use super::*;

    /// A store in this process.
    #[derive(Default)]
    struct Shelf {
        owners: Mutex<HashMap<SessionKey, Owner>>,
        asked: Mutex<usize>,
        renewed: Mutex<Vec<SessionKey>>,
        is_dead: bool,
    }

    impl OwnerStore for Shelf {
        fn settle(&self, claim: HeirClaim) -> BoxFuture<'static, Option<Owner>> {
            *lock(&self.asked) += 1;
            if self.is_dead {
                return std::future::pending().boxed();
            }
            let mut owners = lock(&self.owners);
            let owner = owners.entry(claim.session).or_insert(claim.claimant);
            if Some(*owner) == claim.gone {
                *owner = claim.claimant;
            }
            std::future::ready(Some(*owner)).boxed()
        }

        fn renew(&self, _: Owner, sessions: Vec<SessionKey>) {
            lock(&self.renewed).extend(sessions);
        }
    }

    fn replica(number: u16) -> Owner {
        Owner { address: SocketAddr::from(([10, 0, 0, 1], number)), boot: u64::from(number) }
    }

    fn key() -> SessionKey {
        SessionKey::of("/r", b"id")
    }

    #[test]
    fn the_name_of_a_session_tells_nothing_of_its_id() {
        assert_eq!(key().text().len(), 32);
        assert_ne!(key(), SessionKey::of("/s", b"id"));
        assert_ne!(SessionKey::of("/r", b"sid"), SessionKey::of("/rs", b"id"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_two_replicas_is_the_heir_and_the_other_knows() {
        let shelf = Arc::new(Shelf::default());
        let [one, two] = [1, 2].map(|number| Heirs::of(replica(number), shelf.clone()));
        assert!(!one.is_mine(key()));
        assert_eq!(one.settle(key(), None).await, Heir::Me);
        assert!(one.is_mine(key()));
        for _ in 0..3 {
            assert_eq!(two.settle(key(), None).await, Heir::Other(replica(1)));
            assert_eq!(one.settle(key(), None).await, Heir::Me);
        }
        assert_eq!(*lock(&shelf.asked), 2, "what is settled is remembered");
        // The next heir has ended too.
        assert_eq!(two.settle(key(), Some(replica(1))).await, Heir::Me);
        assert!(two.is_mine(key()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_costs_fifty_milliseconds_once() {
        let heirs = Heirs::of(replica(1), Arc::new(Shelf { is_dead: true, ..Shelf::default() }));
        let begun = Instant::now();
        for _ in 0..100 {
            assert_eq!(heirs.settle(key(), None).await, Heir::Unknown);
        }
        assert_eq!(begun.elapsed(), SETTLE_MAX);
        assert!(!heirs.is_mine(key()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_replica_has_inherited_is_renewed_while_it_is_used() {
        let shelf = Arc::new(Shelf::default());
        let heirs = Heirs::of(replica(1), shelf.clone());
        heirs.settle(key(), None).await;
        tokio::time::sleep(OWNED_FOR).await;
        let renewed = lock(&shelf.renewed).len();
        assert!((2..=3).contains(&renewed), "{renewed}");
        assert!(heirs.is_mine(key()));
        tokio::time::sleep(HEIR_FOR + RENEW_EVERY).await;
        assert!(!heirs.is_mine(key()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_of_heirs_is_bounded() {
        let shelf = Arc::new(Shelf::default());
        let [one, two] = [1, 2].map(|number| Heirs::of(replica(number), shelf.clone()));
        one.settle(key(), None).await;
        two.settle(key(), None).await;
        for number in 0..HEIRS_MAX {
            let session = SessionKey::of("/r", &number.to_be_bytes());
            two.remember(session, KnownHeir { owner: replica(1), at: Instant::now() });
        }
        assert!(lock(&two.known).len() <= HEIRS_MAX);
    }
}
