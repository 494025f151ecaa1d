//! The store of a fleet in Valkey or Redis: the key `mp:{session}:o` names the owner of a session, for a minute.
//!
//! One task sends commands to the server; requests reach the task through a bounded queue. If the server is down, slow,
//! empty or full, only heartbeats of inherited sessions are affected.

use std::net::SocketAddr;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, cmd, pipe};
use tokio::sync::{mpsc, oneshot};

use super::heirs::{HeirClaim, OWNED_FOR, OwnerStore, SessionKey};
use super::seal::Owner;
use crate::config::routes::Secret;
use crate::transport::tasks;

/// Limit of the commands that wait for the connection to the store. A further command counts as an error of the store.
const COMMANDS_MAX: usize = 1024;

/// Number of sessions that are renewed in one pipeline.
const RENEWED_AT_ONCE: usize = 256;

/// Deadline for an answer of the store.
const ANSWER_MAX: Duration = Duration::from_millis(200);

/// Deadline for connecting to the store.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The longest pause between two attempts to connect to the store.
const RECONNECT_MAX: Duration = Duration::from_secs(2);

// A script, so that two replicas cannot both find no entry and both write one.
/// Claims a session: an owner in the entry stays, unless it is the owner that has ended.
const SETTLE: &str = "local now = redis.call('GET', KEYS[1]) \
     if not now or now == ARGV[2] then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3]) return ARGV[1] end \
     return now";

/// Renews an entry if it still belongs to the replica, and restores it if the store has lost it.
const RENEW: &str = "local now = redis.call('GET', KEYS[1]) \
     if now == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end \
     if not now then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end \
     return 0";

enum StoreCommand {
    Settle(HeirClaim, oneshot::Sender<Owner>),
    Renew(Owner, Vec<SessionKey>),
}

/// The store of owners in Valkey or Redis.
pub(crate) struct Valkey {
    commands: mpsc::Sender<StoreCommand>,
    errors: Counter,
}

impl Valkey {
    /// Returns the store at an address such as `rediss://user:password@host:6379`. Nothing is connected before the
    /// first use. `errors` counts failures.
    ///
    /// # Errors
    /// If the address is not one of Valkey or Redis. The error does not contain the address, which may contain a
    /// password.
    pub(crate) fn open(address: &Secret, errors: Counter) -> Result<Self, RedisError> {
        let client = Client::open(address.reveal())?;
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(ANSWER_MAX))
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_number_of_retries(1)
            .set_max_delay(RECONNECT_MAX);
        let connection = ConnectionManager::new_lazy_with_config(client, config)?;
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        tasks::spawn(speak(connection, received, errors.clone()));
        Ok(Self { commands, errors })
    }

    fn send(&self, command: StoreCommand) {
        // A full queue is an error instead of a wait, because a request must not wait for the store.
        if self.commands.try_send(command).is_err() {
            self.errors.inc();
        }
    }
}

impl OwnerStore for Valkey {
    fn settle(&self, claim: HeirClaim) -> BoxFuture<'static, Option<Owner>> {
        let (answer, answered) = oneshot::channel();
        self.send(StoreCommand::Settle(claim, answer));
        answered.map(Result::ok).boxed()
    }

    fn renew(&self, owner: Owner, sessions: Vec<SessionKey>) {
        self.send(StoreCommand::Renew(owner, sessions));
    }
}

/// Sends the commands to the store, one after the other.
async fn speak(
    mut connection: ConnectionManager,
    mut commands: mpsc::Receiver<StoreCommand>,
    errors: Counter,
) {
    let mut health = StoreHealth::default();
    while let Some(command) = commands.recv().await {
        let task = match command {
            StoreCommand::Settle(..) => StoreTask::Claim,
            StoreCommand::Renew(..) => StoreTask::Renewal,
        };
        let done = match command {
            // The request may have gone on without the result.
            StoreCommand::Settle(_, answer) if answer.is_closed() => continue,
            StoreCommand::Settle(claim, answer) => match settle(&mut connection, claim).await {
                Ok(owner) => {
                    if let Some(owner) = owner {
                        let _ = answer.send(owner);
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            },
            StoreCommand::Renew(owner, sessions) => renew(&mut connection, owner, &sessions).await,
        };
        if done.is_err() {
            errors.inc();
        }
        match (health.note(task, &done), done) {
            (Some(StoreChange::Fails), Err(error)) => {
                let error = error.to_string();
                tracing::warn!(
                    error,
                    "the store of the fleet fails; sessions of replicas that have ended go on without heartbeats"
                );
            }
            (Some(StoreChange::AnswersAgain), _) => {
                tracing::info!("the store of the fleet answers again");
            }
            _ => {}
        }
    }
}

/// Whether the store works, judged by the result of each command. Claims and renewals are judged separately: a full
/// store accepts renewals of its entries but refuses claims, which are new entries.
#[derive(Debug, Default)]
struct StoreHealth {
    failing: [bool; 2],
}

/// The kind of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreTask {
    Claim,
    Renewal,
}

/// A message for operators, given once for each change.
#[derive(Debug, PartialEq, Eq)]
enum StoreChange {
    /// The first command that fails after a time without failures.
    Fails,
    /// Both kinds of commands succeed again after a failure.
    AnswersAgain,
}

impl StoreHealth {
    /// Takes the outcome of a command.
    fn note<E>(&mut self, task: StoreTask, outcome: &Result<(), E>) -> Option<StoreChange> {
        let had_failed = self.failing.contains(&true);
        self.failing[task as usize] = outcome.is_err();
        match (had_failed, self.failing.contains(&true)) {
            (false, true) => Some(StoreChange::Fails),
            (true, false) => Some(StoreChange::AnswersAgain),
            _ => None,
        }
    }
}

async fn settle(
    connection: &mut ConnectionManager,
    claim: HeirClaim,
) -> Result<Option<Owner>, RedisError> {
    let gone = claim.gone.map(text).unwrap_or_default();
    let owner: String = cmd("EVAL")
        .arg(SETTLE)
        .arg(1)
        .arg(place(claim.session))
        .arg(text(claim.claimant))
        .arg(gone)
        .arg(milliseconds())
        .query_async(connection)
        .await?;
    Ok(read(&owner))
}

async fn renew(
    connection: &mut ConnectionManager,
    owner: Owner,
    sessions: &[SessionKey],
) -> Result<(), RedisError> {
    for some in sessions.chunks(RENEWED_AT_ONCE) {
        let mut pipeline = pipe();
        for session in some {
            let renewal = pipeline.cmd("EVAL").arg(RENEW).arg(1).arg(place(*session));
            renewal.arg(text(owner)).arg(milliseconds()).ignore();
        }
        pipeline.query_async::<()>(connection).await?;
    }
    Ok(())
}

fn milliseconds() -> u64 {
    u64::try_from(OWNED_FOR.as_millis()).unwrap_or(u64::MAX)
}

fn place(session: SessionKey) -> String {
    // The braces are the hash tag of a Redis cluster: they put all keys of a session into one slot.
    format!("mp:{{{}}}:o", session.text())
}

/// Returns an owner in the form of the store.
fn text(owner: Owner) -> String {
    format!("{} {:x}", owner.address, owner.boot)
}

fn read(text: &str) -> Option<Owner> {
    let (address, boot) = text.split_once(' ')?;
    let address: SocketAddr = address.parse().ok()?;
    Some(Owner { address, boot: u64::from_str_radix(boot, 16).ok()? })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use tempfile::TempDir;

    use super::*;

    /// Deadline for the server in tests, long enough for a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A Redis server with its own socket, which ends with the test.
    struct RedisServer {
        child: Child,
        folder: TempDir,
    }

    impl RedisServer {
        /// Starts Redis; `None` if this machine does not have it.
        fn start() -> Option<Self> {
            let folder = tempfile::tempdir().unwrap();
            let mut server = Command::new("redis-server");
            server.args(["--port", "0", "--save", "", "--unixsocket", "redis.sock"]);
            let server = server.current_dir(folder.path()).stdout(Stdio::null());
            Some(Self { child: server.spawn().ok()?, folder })
        }

        async fn connection(&self) -> ConnectionManager {
            let socket = self.folder.path().join("redis.sock");
            let appears = async {
                while !socket.exists() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(PATIENCE, appears).await.expect("no socket");
            let client = Client::open(format!("redis+unix://{}", socket.display())).unwrap();
            let config = ConnectionManagerConfig::new()
                .set_response_timeout(Some(PATIENCE))
                .set_connection_timeout(Some(PATIENCE));
            ConnectionManager::new_with_config(client, config).await.unwrap()
        }
    }

    impl Drop for RedisServer {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn owner(port: u16) -> Owner {
        Owner { address: SocketAddr::from(([10, 0, 0, 1], port)), boot: u64::from(port) }
    }

    fn claim(session: SessionKey, claimant: Owner, gone: Option<Owner>) -> HeirClaim {
        HeirClaim { session, claimant, gone }
    }

    #[tokio::test]
    async fn an_emptied_store_gets_its_entries_back_and_a_full_one_keeps_them() {
        let Some(server) = RedisServer::start() else { return };
        let (first, second, third) = (owner(1), owner(2), owner(3));
        let session = SessionKey::of("/r", b"id");
        let mut store = server.connection().await;
        let settled = async |claimant, gone| {
            settle(&mut server.connection().await, claim(session, claimant, gone)).await
        };
        assert_eq!(settled(first, None).await.unwrap(), Some(first));
        assert_eq!(settled(second, None).await.unwrap(), Some(first));

        cmd("FLUSHALL").exec_async(&mut store).await.unwrap();
        renew(&mut store, first, &[session]).await.unwrap();
        assert_eq!(settled(second, None).await.unwrap(), Some(first));
        // A replica that has inherited the session keeps it, even if the first replica renews it.
        assert_eq!(settled(second, Some(first)).await.unwrap(), Some(second));
        renew(&mut store, first, &[session]).await.unwrap();
        assert_eq!(settled(third, None).await.unwrap(), Some(second));

        cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec_async(&mut store).await.unwrap();
        settled(third, Some(second)).await.unwrap_err();
        renew(&mut store, second, &[session]).await.unwrap();
        renew(&mut store, second, &[SessionKey::of("/r", b"lost")]).await.unwrap_err();
        let life: u64 = cmd("PTTL").arg(place(session)).query_async(&mut store).await.unwrap();
        assert!(life > milliseconds() / 2, "{life}");
    }

    /// Returns the notices for operators after these commands: claims (`c`) and renewals (`r`), in capitals if they
    /// fail.
    fn told(commands: &str) -> Vec<Option<StoreChange>> {
        let mut health = StoreHealth::default();
        let note = |sign: char| {
            let is_renewal = sign.eq_ignore_ascii_case(&'r');
            let task = if is_renewal { StoreTask::Renewal } else { StoreTask::Claim };
            health.note(task, &if sign.is_ascii_lowercase() { Ok(()) } else { Err(()) })
        };
        commands.chars().map(note).collect()
    }

    #[test]
    fn a_store_that_fails_is_told_once_and_so_is_its_recovery() {
        let (fails, again) = (Some(StoreChange::Fails), Some(StoreChange::AnswersAgain));
        assert_eq!(told("crC"), [None, None, fails]);
        let fails = || Some(StoreChange::Fails);
        assert_eq!(told("CCRcCr")[..3], [fails(), None, None]);
        assert_eq!(told("CCcR"), [fails(), None, again, fails()]);
    }

    #[test]
    fn a_full_store_that_renews_and_refuses_claims_fails_all_the_time() {
        let mut expected = vec![Some(StoreChange::Fails)];
        expected.extend([const { None }; 5]);
        expected.push(Some(StoreChange::AnswersAgain));
        assert_eq!(told("CrCrrCc"), expected);
    }

    #[test]
    fn owners_are_read_as_they_are_written() {
        for address in ["10.0.0.1:7334", "[fd00::7]:1"] {
            let owner = Owner { address: address.parse().unwrap(), boot: u64::MAX - 7 };
            assert_eq!(read(&text(owner)), Some(owner));
        }
        for wrong in ["", "10.0.0.1:7334", "10.0.0.1 7", "10.0.0.1:7334 x"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert!(place(SessionKey::of("/r", b"id")).starts_with("mp:{"));
    }
}
