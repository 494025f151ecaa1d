//! Replicas of one proxy in memory, behind a balancer that a test is itself.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use milepost::config::routes::{Environment, Routes, Server};
use milepost::gateway::dispatch::Proxy;
use milepost::gateway::fleet::heirs::OwnerStore;
use milepost::gateway::fleet::{DialReplica, FleetMember};
use milepost::gateway::listen::admission::principal;
use milepost::gateway::listen::{Admitted, Handler, Peer, Routed};
use milepost::observe::durations::DurationStore;
use milepost::transport::http::body::Body;
use milepost::transport::http::client::InProcess;
use milepost::transport::http::endpoints::RouteTable;
use milepost::transport::http::io::Io;
use milepost::transport::http::refusal::Refusal;
use milepost::transport::http::via::Via;
use milepost::transport::http::write_state::WriteState;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::http::rig::{Answer, Asked, BOTH, Lines, request, server, settle};

/// Bytes that a connection holds between its ends.
const ROOM: usize = 64 << 10;

/// The key of every replica, unless a test says otherwise.
pub(crate) const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// The routes that a test can have.
pub(crate) const HTTP: &str = "upstream.url = \"http://up.example/mcp\"";
pub(crate) const SSE: &str = "upstream.sse = \"http://up.example/sse\"";
pub(crate) const STDIO: &str = "upstream.command = [\"server\"]";

type Network = Arc<Mutex<HashMap<SocketAddr, Weak<Replica>>>>;

struct Replica {
    routed: Mutex<Option<Arc<Routed>>>,
    server: Server,
    places: RouteTable,
    /// The passports that other replicas sent with their requests.
    passports: Arc<Mutex<Vec<String>>>,
    /// The connections of its clients, and of other replicas.
    connections: Mutex<Vec<AbortHandle>>,
}

/// Replicas of one proxy, with one server for all of them.
pub(crate) struct Replicas {
    replicas: Vec<Arc<Replica>>,
    network: Network,
    connect: InProcess,
    asked: mpsc::UnboundedReceiver<Asked>,
    started: mpsc::UnboundedReceiver<Lines>,
    refuses: Arc<AtomicBool>,
    route: String,
    /// Lines of `[server]`.
    server: String,
    /// The address of the clients that send requests from now on.
    pub(crate) from: IpAddr,
    /// The passports of requests that replicas have passed on, in their order.
    pub(crate) passports: Arc<Mutex<Vec<String>>>,
    /// The store of all replicas.
    store: Option<Arc<dyn OwnerStore>>,
    /// The fleet that is the server of this fleet.
    _behind: Option<Box<Self>>,
    start: Instant,
    next_name: u32,
    /// How often a replica has connected to another.
    tries: Arc<AtomicUsize>,
    /// The error that a replica gets when it connects to another; 0: none.
    pub(crate) dial_error: Arc<AtomicI32>,
}

impl Replicas {
    /// Returns this number of replicas of the route `/r` with these keys, in a fleet.
    pub(crate) fn new(count: usize, route: &str) -> Self {
        let mut fleet = Self::none(route);
        for number in 0..count {
            fleet.add(Some(&table(number, &[KEY])));
        }
        fleet
    }

    /// The same with these lines of `[server]`.
    pub(crate) fn having(count: usize, route: &str, server: &str) -> Self {
        let mut fleet = Self { server: server.to_owned(), ..Self::none(route) };
        (0..count).for_each(|number| fleet.add(Some(&table(number, &[KEY]))));
        fleet
    }

    /// Returns this number of replicas with a store.
    pub(crate) fn with_store(count: usize, route: &str, store: Arc<dyn OwnerStore>) -> Self {
        let mut fleet = Self { store: Some(store), ..Self::none(route) };
        (0..count).for_each(|number| fleet.add(Some(&table(number, &[KEY]))));
        fleet
    }

    /// Returns this number of replicas whose server is another fleet. Each connection goes to the next replica of that
    /// fleet.
    pub(crate) fn before(mut behind: Self, count: usize) -> Self {
        let mut fleet = Self::none("upstream.url = \"http://up.example/r\"");
        std::mem::swap(&mut fleet.asked, &mut behind.asked);
        fleet.next_name = behind.next_name;
        let (replicas, turn) = (behind.replicas.clone(), AtomicUsize::new(0));
        fleet.connect = Arc::new(move || {
            let next = turn.fetch_add(1, Ordering::Relaxed) % replicas.len();
            let connected = connect(&replicas[next], Some(Ipv4Addr::LOCALHOST.into()));
            async move { connected.map(|io| Box::new(io) as Io) }.boxed()
        });
        fleet._behind = Some(Box::new(behind));
        (0..count).for_each(|number| fleet.add(Some(&table(number, &[KEY]))));
        fleet
    }

    /// Returns a single proxy of the same route without a fleet, for comparison.
    pub(crate) fn alone(route: &str) -> Self {
        let mut alone = Self::none(route);
        alone.add(None);
        alone
    }

    pub(crate) fn none(route: &str) -> Self {
        let (tell, started) = mpsc::unbounded_channel();
        let (over_http, asked, refuses) = server();
        let over_lines = move || -> BoxFuture<'static, io::Result<Io>> {
            let (near, far) = duplex(ROOM);
            let _ = tell.send(Lines::new(far));
            async move { Ok(Box::new(near) as Io) }.boxed()
        };
        let connect = if route.starts_with(STDIO) { Arc::new(over_lines) } else { over_http };
        Self {
            replicas: Vec::new(),
            network: Network::default(),
            connect,
            asked,
            started,
            refuses,
            route: route.to_owned(),
            server: String::new(),
            from: Ipv4Addr::LOCALHOST.into(),
            passports: Arc::default(),
            store: None,
            _behind: None,
            start: Instant::now(),
            next_name: 0,
            tries: Arc::default(),
            dial_error: Arc::default(),
        }
    }

    /// One more replica, with this table of its file.
    pub(crate) fn add(&mut self, table: Option<&str>) {
        let replica = self.begin(table);
        self.replicas.push(replica);
    }

    fn begin(&mut self, table: Option<&str>) -> Arc<Replica> {
        let (server, table, route) = (&self.server, table.unwrap_or_default(), &self.route);
        let file = format!("[server]\n{server}\n{table}\n[[route]]\npath = \"/r\"\n{route}\n");
        let routes = Routes::parse("proxy.toml".as_ref(), &file, &Environment::default());
        let routes = routes.unwrap_or_else(|error| panic!("{error}"));
        self.next_name += 1;
        let via = Via::named(self.next_name);
        let memory = DurationStore::default();
        let proxy = Proxy::new(&routes, via, Some(&self.connect), &memory, &[]).unwrap();
        let network = Arc::downgrade(&self.network);
        let tries = Arc::clone(&self.tries);
        let error = Arc::clone(&self.dial_error);
        let dial: DialReplica = Arc::new(move |address| {
            tries.fetch_add(1, Ordering::Relaxed);
            match error.load(Ordering::Relaxed) {
                0 => dial(&network, address),
                code => async move { Err(io::Error::from_raw_os_error(code)) }.boxed(),
            }
        });
        let store = self.store.clone();
        let joined =
            |settings| FleetMember::join_with(settings, &proxy, Some(dial), store).unwrap();
        let fleet = routes.fleet().map(joined);
        let routed = Arc::new(Routed { proxy, calls: None, fleet });
        let replica = Arc::new(Replica {
            routed: Mutex::new(Some(routed)),
            server: routes.server().clone(),
            places: RouteTable::new(routes.iter()),
            passports: Arc::clone(&self.passports),
            connections: Mutex::default(),
        });
        if let Some(settings) = routes.fleet() {
            let mut network = self.network.lock().unwrap();
            network.insert(settings.advertise, Arc::downgrade(&replica));
        }
        replica
    }

    /// A replica is gone, with all of its connections.
    pub(crate) async fn kill(&self, number: usize) {
        let replica = &self.replicas[number];
        drop(replica.routed.lock().unwrap().take());
        replica.connections.lock().unwrap().drain(..).for_each(|connection| connection.abort());
        settle().await;
    }

    /// A new process takes the place of a replica, with this table of its file.
    pub(crate) async fn restart(&mut self, number: usize, table: Option<&str>) {
        self.kill(number).await;
        self.replicas[number] = self.begin(table);
    }

    /// A replica with this table answers at the address of another.
    pub(crate) fn answer_for(&mut self, number: usize, table: &str) {
        let replica = self.begin(Some(table));
        let address = SocketAddr::from(([10, 0, 0, u8::try_from(number + 1).unwrap()], 7334));
        self.network.lock().unwrap().insert(address, Arc::downgrade(&replica));
        self.replicas.push(replica);
    }

    pub(crate) fn count(&self) -> usize {
        self.replicas.len()
    }

    /// A client sends a request to one of the replicas, on a connection of its own.
    pub(crate) fn send(&self, to: usize, start: &str, headers: &[&str], body: &[u8]) -> Answer {
        let said = request("localhost:7332", start, headers, body);
        let connected = connect(&self.replicas[to], Some(self.from));
        Answer::to(async { connected }, said, body, self.start)
    }

    /// Sends a request to the address for other replicas, without a passport.
    pub(crate) fn send_to_fleet(&self, to: usize, start: &str, headers: &[&str]) -> Answer {
        let said = request("localhost:7332", start, headers, b"");
        let connected = connect(&self.replicas[to], None);
        Answer::to(async { connected }, said, b"", self.start)
    }

    /// The next request that has reached the server.
    #[track_caller]
    pub(crate) fn asked(&mut self) -> BoxFuture<'_, Asked> {
        let caller = std::panic::Location::caller();
        async move {
            settle().await;
            self.asked.try_recv().unwrap_or_else(|_| panic!("the server was not asked: {caller}"))
        }
        .boxed()
    }

    /// A request that has reached the server, if one has.
    pub(crate) async fn try_asked(&mut self) -> Option<Asked> {
        settle().await;
        self.asked.try_recv().ok()
    }

    /// A stdio server that was started, if one was.
    pub(crate) fn try_started(&mut self) -> Option<Lines> {
        self.started.try_recv().ok()
    }

    /// The server cannot be reached any more.
    pub(crate) fn refuse_connections(&self) {
        self.refuses.store(true, Ordering::Relaxed);
    }

    /// Since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether no call is open at any replica.
    pub(crate) async fn calls_done(&self) -> bool {
        settle().await;
        self.replicas.iter().all(|replica| {
            let routed = replica.routed.lock().unwrap();
            routed.as_ref().is_none_or(|routed| routed.proxy.calls_done().now_or_never().is_some())
        })
    }

    /// Whether the server was asked nothing more.
    pub(crate) async fn asks_nothing(&mut self) -> bool {
        self.try_asked().await.is_none()
    }

    /// The stdio server that was started last.
    pub(crate) async fn started(&mut self) -> Lines {
        settle().await;
        self.try_started().expect("a server is started")
    }

    /// How often a replica has connected to another, or tried to.
    pub(crate) fn tries(&self) -> usize {
        self.tries.load(Ordering::Relaxed)
    }

    /// A counter of all replicas together, by the line before its value.
    pub(crate) fn counter(&self, line: &str) -> u64 {
        let texts = self.replicas.iter().filter_map(|replica| {
            Some(replica.routed.lock().unwrap().as_ref()?.proxy.metrics_text())
        });
        let values = texts.flat_map(|text| {
            let values = text.lines().filter_map(|one| one.strip_prefix(line)?.trim().parse().ok());
            values.collect::<Vec<u64>>()
        });
        values.sum()
    }

    /// Requests that replicas have counted for this event.
    pub(crate) fn events(&self, event: &str) -> u64 {
        self.counter(&format!("milepost_fleet_requests_total{{event=\"{event}\"}}"))
    }

    /// Messages that were withheld although they may be a client's.
    pub(crate) fn withheld(&self) -> u64 {
        let of = |reason: &str| {
            self.counter(&format!("milepost_withheld_total{{reason=\"{reason}\",route=\"/r\"}}"))
                + self.counter(&format!(
                    "milepost_withheld_total{{route=\"/r\",reason=\"{reason}\"}}"
                ))
        };
        of("unknown-request") + of("orphan-answer")
    }
}

/// The table of a replica with these keys.
pub(crate) fn table(number: usize, keys: &[&str]) -> String {
    format!(
        "[fleet]\nkey = {keys:?}\nlisten = \"127.0.0.1:0\"\nadvertise = \"10.0.0.{}:7334\"\n",
        number + 1
    )
}

fn dial(
    network: &Weak<Mutex<HashMap<SocketAddr, Weak<Replica>>>>,
    address: SocketAddr,
) -> BoxFuture<'static, io::Result<Io>> {
    let replica = network
        .upgrade()
        .and_then(|network| network.lock().unwrap().get(&address).and_then(Weak::upgrade));
    let connected = match replica {
        Some(replica) => connect(&replica, None),
        None => Err(io::ErrorKind::ConnectionRefused.into()),
    };
    async move { connected.map(|io| Box::new(io) as Io) }.boxed()
}

/// A connection to a replica, of a client or of another replica.
fn connect(replica: &Arc<Replica>, client: Option<IpAddr>) -> io::Result<DuplexStream> {
    let routed = replica.routed.lock().unwrap().clone();
    let routed = routed.ok_or(io::ErrorKind::ConnectionRefused)?;
    let (near, far) = duplex(ROOM);
    // Weak: the state of a killed replica must be dropped, whatever its clients do.
    let (server, place) = (Arc::downgrade(replica), Arc::downgrade(&routed));
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (replica, routed) = (server.upgrade(), place.upgrade());
        async move {
            let (replica, routed) = (replica.expect("it is there"), routed.expect("it is there"));
            Ok::<_, Infallible>(answer(&replica, &routed, request, client).await)
        }
    });
    let connection = tokio::spawn(async move {
        let mut server = hyper::server::conn::http1::Builder::new();
        server.auto_date_header(false);
        let _ = server.serve_connection(TokioIo::new(far), service).await;
    });
    let mut connections = replica.connections.lock().unwrap();
    connections.retain(|connection| !connection.is_finished());
    connections.push(connection.abort_handle());
    Ok(near)
}

async fn answer(
    replica: &Replica,
    routed: &Arc<Routed>,
    request: http::Request<Incoming>,
    of: Option<IpAddr>,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let mut client = Peer {
        remote: SocketAddr::new(of.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), 4711),
        local: SocketAddr::from(([127, 0, 0, 1], 7332)),
        secure: false,
        name: None,
        write_state: WriteState::default(),
        last_use: None,
    };
    if of.is_none() {
        let passport = parts.headers.get("milepost-forwarded").and_then(|it| it.to_str().ok());
        replica.passports.lock().unwrap().extend(passport.map(str::to_owned));
        match routed.passed_on(client, &mut parts) {
            Ok(passed_on) => client = passed_on,
            Err(refusal) => return refused(refusal),
        }
    }
    let named = match principal(&replica.server, &client, &parts) {
        Ok(named) => named,
        Err(refusal) => return refused(refusal),
    };
    if let Some(name) = named.name.clone() {
        parts.extensions.insert(name);
    }
    client.name = named.name;
    let place = replica.places.find(parts.uri.path());
    let place = place.unwrap_or_else(|| panic!("no place for {}", parts.uri));
    let admitted = Admitted {
        served: routed.served().get(place.route).cloned(),
        route_match: place,
        client,
        trusted_proxies: Arc::from(&*replica.server.trusted_proxies),
        foreign_headers: named.foreign.into_iter().collect(),
        authorization_was_ours: false,
    };
    routed.handle(http::Request::from_parts(parts, body), admitted).await
}

fn refused(refusal: Refusal) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = refusal.status();
    response
}

/// How the requests of a client are spread over replicas.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spread {
    /// One after the other.
    RoundRobin,
    /// Always the first: a balancer with a memory.
    Sticky,
    /// Any but the first.
    NeverOwner,
    /// By chance, from this seed.
    Chance(u64),
}

/// A client of the replicas.
pub(crate) struct Client {
    spread: Spread,
    requests: usize,
    /// The session as the client has it.
    pub(crate) session: Option<String>,
}

impl Client {
    pub(crate) fn new(spread: Spread) -> Self {
        Self { spread, requests: 0, session: None }
    }

    /// The replica of the next request.
    pub(crate) fn next(&mut self, of: usize) -> usize {
        let number = self.requests;
        self.requests += 1;
        match self.spread {
            Spread::Sticky => 0,
            Spread::RoundRobin => number % of,
            Spread::NeverOwner if number == 0 || of == 1 => 0,
            Spread::NeverOwner => 1 + number % (of - 1),
            Spread::Chance(seed) => {
                let mut mixed = (seed << 20) + number as u64 + 1;
                for _ in 0..3 {
                    mixed ^= mixed << 13;
                    mixed ^= mixed >> 7;
                    mixed ^= mixed << 17;
                }
                usize::try_from(mixed % of as u64).unwrap()
            }
        }
    }

    fn headers<'a>(&self, more: &[&'a str], named: &'a str) -> Vec<&'a str> {
        let mut all = more.to_vec();
        if self.session.is_some() {
            all.push(named);
        }
        all
    }

    /// Posts a message to the endpoint of Streamable HTTP.
    pub(crate) fn post(&mut self, replicas: &Replicas, body: impl AsRef<[u8]>) -> Answer {
        let named = format!("Mcp-Session-Id: {}", self.session.as_deref().unwrap_or_default());
        let headers = self.headers(&[BOTH, "Content-Type: application/json"], &named);
        replicas.send(self.next(replicas.count()), "POST /r", &headers, body.as_ref())
    }

    /// Opens a GET stream.
    pub(crate) fn get(&mut self, replicas: &Replicas, last: Option<&str>) -> Answer {
        let named = format!("Mcp-Session-Id: {}", self.session.as_deref().unwrap_or_default());
        let last = last.map(|id| format!("Last-Event-ID: {id}"));
        let mut headers = self.headers(&["Accept: text/event-stream"], &named);
        headers.extend(last.as_deref());
        replicas.send(self.next(replicas.count()), "GET /r", &headers, b"")
    }
}
