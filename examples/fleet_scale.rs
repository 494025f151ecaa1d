//! A simulation of a large fleet: arrivals, kills and rollouts of a thousand replicas in virtual time.
//!
//! Where each request is served is decided by the code of the product: ids are sealed and opened
//! (`gateway::fleet::seal`), and the replica that gets a request decides by `gateway::fleet::course`. The balancer,
//! the network, the servers and the clients are played: a balancer spreads all requests at random and learns half a
//! second late that a replica is not ready; a killed replica refuses connections; a client whose stream breaks off comes
//! back after a second with the id of the last event.
//!
//! ```text
//! $ cargo run --release --example fleet_scale -- --replicas 1000 --sessions 100000 --minutes 10
//! ```
//!
//! The program fails if a request reaches a session of another client, if a replica passes on what was passed on, or if a
//! call ends neither with an answer nor with an error. `docs/deploy.md` has its figures.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::fmt::Display;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};

use clap::Parser;
use milepost::gateway::fleet::course::{Course, RequestSender, course};
use milepost::gateway::fleet::seal::{IdBinding, IdKind, Opened, Owner, Seal};

/// The time until the balancer knows that a replica is ready, or is not any more.
const NOTICED: u64 = 500;
/// The times of a replica that is ended.
const LINGER: u64 = 3_000;
const DRAIN: u64 = 30_000;
const RESTART: u64 = 2_000;
/// The time for which a replica that refused is not tried.
const DOWN_FOR: u64 = 5_000;
/// The pause of a client before it resumes.
const RESUME: u64 = 1_000;
/// How often a balancer tries another replica.
const RETRIES: usize = 3;

/// Plays a fleet in virtual time.
#[derive(Parser, Clone)]
struct Plan {
    /// Replicas behind the balancer
    #[arg(long, default_value_t = 1000)]
    replicas: usize,
    /// Sessions that are open at the same time
    #[arg(long, default_value_t = 100_000)]
    sessions: usize,
    /// Minutes that are played
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Seconds between two calls of a session, on average
    #[arg(long, default_value_t = 30)]
    pause: u64,
    /// Seconds that a call takes, on average
    #[arg(long, default_value_t = 5)]
    call: u64,
    /// Sessions in a hundred whose server is a child process of a replica
    #[arg(long, default_value_t = 50)]
    children: u64,
    /// Seconds between two kills of a replica; 0: none
    #[arg(long, default_value_t = 20)]
    kill_every: u64,
    /// Replicas that a rollout ends at a time, one group a minute; 0: no rollout
    #[arg(long, default_value_t = 100)]
    roll: usize,
    /// Requests in a hundred that the balancer sends to the owner of the session
    #[arg(long, default_value_t = 0)]
    sticky: u64,
    /// Settle in a store who inherits a session
    #[arg(long)]
    store: bool,
    /// The first random number
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Random numbers that are the same in every run (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.roll() >> 11) % end.max(1)
    }

    /// Milliseconds, exponentially distributed around an average of so many seconds.
    fn around(&mut self, seconds: u64) -> u64 {
        let part = ((self.roll() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        (-part.ln() * seconds as f64 * 1000.0) as u64 + 1
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Ready,
    Lingering,
    Draining,
    Dead,
}

struct Replica {
    owner: Owner,
    phase: Phase,
    /// Calls that it serves or passes on.
    calls: BTreeSet<u64>,
    /// Replicas that refused, and until when they are not tried.
    down: HashMap<SocketAddr, u64>,
}

struct Session {
    /// The id as the client has it.
    text: String,
    has_child: bool,
}

#[derive(Clone, Copy)]
struct Call {
    session: usize,
    /// The replica that has the client's connection, and the one that serves the call.
    receiver: usize,
    server: usize,
    ends: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin(usize),
    Ask(usize),
    Answer(u64),
    Resume(u64),
    Kill,
    Roll(usize),
    Close(usize),
    CutOff(usize, u64),
    Restart(usize),
    Notice(usize),
}

/// What has been counted.
#[derive(Default, Debug, Clone)]
struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    fn add(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }
}

struct World {
    plan: Plan,
    dice: Dice,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    seal: Seal,
    replicas: Vec<Replica>,
    by_address: HashMap<SocketAddr, usize>,
    /// The replicas that the balancer takes for ready, in its order.
    ready: Vec<usize>,
    sessions: Vec<Session>,
    calls: HashMap<u64, Call>,
    last_call: u64,
    boots: u64,
    /// The store: who inherited a session.
    heirs: HashMap<usize, Owner>,
    counts: Counts,
}

/// The end of a request's way.
enum Found {
    /// The replica that serves it.
    At(usize),
    /// No server has the session any more.
    Lost,
}

fn server_id(session: usize) -> String {
    format!("{session:032x}")
}

fn binding() -> IdBinding<'static> {
    IdBinding { kind: IdKind::Session, route: "/r", principal: "" }
}

impl World {
    fn new(plan: Plan) -> Self {
        let mut world = Self {
            dice: Dice(plan.seed.max(1)),
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            seal: Seal::new(&[[7; 32]]).expect("there is a key"),
            replicas: Vec::new(),
            by_address: HashMap::new(),
            ready: (0..plan.replicas).collect(),
            sessions: Vec::new(),
            calls: HashMap::new(),
            last_call: 0,
            boots: 0,
            heirs: HashMap::new(),
            counts: Counts::default(),
            plan,
        };
        for number in 0..world.plan.replicas {
            let owner = world.new_process(number, false);
            let (phase, calls, down) = (Phase::Ready, BTreeSet::new(), HashMap::new());
            world.replicas.push(Replica { owner, phase, calls, down });
        }
        for number in 0..world.plan.sessions {
            let has_child = world.dice.below(100) < world.plan.children;
            world.sessions.push(Session { text: String::new(), has_child });
            // Sessions arrive in the first half minute.
            let at = world.dice.below(30_000);
            world.at(at, Event::Begin(number));
        }
        if world.plan.kill_every > 0 {
            world.at(world.plan.kill_every * 1000, Event::Kill);
        }
        if world.plan.roll > 0 {
            world.at(60_000, Event::Roll(0));
        }
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    /// A process for a place in the fleet, at its old address or at a new one.
    fn new_process(&mut self, number: usize, moves: bool) -> Owner {
        self.boots += 1;
        let old = self.replicas.get(number).map(|replica| replica.owner.address);
        let address = match old {
            Some(address) if !moves => address,
            _ => {
                let ip = u32::from(Ipv4Addr::new(10, 0, 0, 0)) + self.boots as u32;
                SocketAddr::from((Ipv4Addr::from(ip), 7334))
            }
        };
        if let Some(old) = old {
            self.by_address.remove(&old);
        }
        self.by_address.insert(address, number);
        Owner { address, boot: self.boots }
    }

    fn play(&mut self) {
        let end = self.plan.minutes * 60_000;
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            self.now = time;
            // What is open at the end is played to its end.
            let is_over = time > end;
            match event {
                Event::Begin(session) if !is_over => self.begin(session),
                Event::Ask(session) if !is_over => self.ask(session),
                Event::Begin(_) | Event::Ask(_) => {}
                Event::Answer(call) => self.answer(call),
                Event::Resume(call) => self.resume(call),
                Event::Kill if !is_over => self.kill(),
                Event::Roll(first) if !is_over => self.roll(first),
                Event::Kill | Event::Roll(_) => {}
                Event::Close(number) => self.close(number),
                Event::CutOff(number, boot) => self.cut_off(number, boot),
                Event::Restart(number) => self.restart(number),
                Event::Notice(number) => self.notice(number),
            }
        }
    }

    /// The replica that the balancer connects to: the owner where it is sticky, else any.
    fn connect(&mut self, session: usize) -> Option<usize> {
        let owner = self.owner_of(session).filter(|_| self.dice.below(100) < self.plan.sticky);
        let sticky = owner.and_then(|owner| self.by_address.get(&owner.address).copied());
        let mut sticky = sticky.filter(|number| self.ready.contains(number));
        for _ in 0..=RETRIES {
            if self.ready.is_empty() {
                break;
            }
            let place = self.dice.below(self.ready.len() as u64) as usize;
            let number = sticky.take().unwrap_or(self.ready[place]);
            if matches!(self.replicas[number].phase, Phase::Ready | Phase::Lingering) {
                return Some(number);
            }
            self.counts.add("connections refused to the balancer");
        }
        None
    }

    fn owner_of(&self, session: usize) -> Option<Owner> {
        match self.seal.open(self.sessions[session].text.as_bytes(), &binding()) {
            Opened::Sealed(sealed) => Some(sealed.owner),
            _ => None,
        }
    }

    fn begin(&mut self, session: usize) {
        self.heirs.remove(&session);
        self.sessions[session].text.clear();
        for _ in 0..=RETRIES {
            let Some(number) = self.connect(session) else { break };
            if self.replicas[number].phase == Phase::Lingering {
                self.counts.add("initialize refused with 503, and sent to another replica");
                continue;
            }
            let mut nonce = [0; 12];
            nonce[..8].copy_from_slice(&self.dice.roll().to_be_bytes());
            let owner = self.replicas[number].owner;
            let sealed = self.seal.seal(owner, server_id(session).as_bytes(), nonce, &binding());
            self.sessions[session].text = sealed.expect("the id is short");
            self.counts.add("sessions begun");
            let pause = self.dice.around(self.plan.pause);
            return self.at(self.now + pause, Event::Ask(session));
        }
        self.counts.add("sessions that no replica took");
        self.at(self.now + 1000, Event::Begin(session));
    }

    fn ask(&mut self, session: usize) {
        self.counts.add("calls");
        let length = self.dice.around(self.plan.call);
        let Some(receiver) = self.connect(session) else {
            self.counts.add("calls that no replica took");
            return self.at(self.now + 1000, Event::Ask(session));
        };
        match self.find(session, receiver) {
            Found::At(server) => {
                self.last_call += 1;
                let call = Call { session, receiver, server, ends: self.now + length };
                self.place(self.last_call, call);
                self.at(call.ends, Event::Answer(self.last_call));
            }
            Found::Lost => {
                self.counts.add("calls answered with 404: the child ended before");
                self.at(self.now + 1, Event::Begin(session));
            }
        }
    }

    /// The way of a request of a session that `receiver` gets, decided by the code of the product.
    fn find(&mut self, session: usize, receiver: usize) -> Found {
        self.counts.add("requests");
        let opened = self.seal.open(self.sessions[session].text.as_bytes(), &binding());
        let Opened::Sealed(sealed) = opened else {
            panic!("a sealed id is not opened: {opened:?}")
        };
        assert_eq!(sealed.id, server_id(session).as_bytes(), "another client's session");
        if self.plan.store && self.heirs.get(&session) == Some(&self.replicas[receiver].owner) {
            return Found::At(receiver);
        }
        let mut owner = sealed.owner;
        for _ in 0..3 {
            let me = &self.replicas[receiver];
            let now = self.now;
            let is_down = |address| me.down.get(&address).is_some_and(|until| now < *until);
            match course(owner, me.owner, RequestSender::Client, is_down) {
                Course::Here => return Found::At(receiver),
                Course::Loop => panic!("a request of a client was passed on"),
                Course::Elsewhere(address) => {
                    if let Some(found) = self.pass_on(session, owner, receiver, address) {
                        return found;
                    }
                }
                Course::Gone => {}
            }
            if self.sessions[session].has_child {
                return Found::Lost;
            }
            if !self.plan.store {
                break;
            }
            // The store: whoever is there stays, unless it is the one that is gone.
            self.counts.add("questions to the store");
            let me = self.replicas[receiver].owner;
            let heir = self.heirs.entry(session).or_insert(me);
            if *heir == owner {
                *heir = me;
            }
            owner = *heir;
            if owner == me {
                break;
            }
        }
        self.counts.add("requests served in the place of an owner that is gone");
        Found::At(receiver)
    }

    /// Passes a request on; `None` if nobody answers there.
    fn pass_on(
        &mut self,
        session: usize,
        owner: Owner,
        receiver: usize,
        address: SocketAddr,
    ) -> Option<Found> {
        let there = self.by_address.get(&address).copied();
        let there = there.filter(|there| self.replicas[*there].phase != Phase::Dead);
        let Some(there) = there else {
            self.counts.add("replicas found dead by a refused connection");
            self.replicas[receiver].down.insert(address, self.now + DOWN_FOR);
            return None;
        };
        self.counts.add("requests passed on");
        let is_heir = self.heirs.get(&session) == Some(&self.replicas[there].owner);
        match course(owner, self.replicas[there].owner, RequestSender::Replica, |_| false) {
            Course::Here => Some(Found::At(there)),
            _ if is_heir => Some(Found::At(there)),
            // Another process has the address now.
            Course::Gone if self.sessions[session].has_child => Some(Found::Lost),
            Course::Gone => {
                self.counts.add("requests served in the place of an owner that is gone");
                Some(Found::At(there))
            }
            other => panic!("a request was passed on twice: {other:?}"),
        }
    }

    fn place(&mut self, number: u64, call: Call) {
        self.calls.insert(number, call);
        self.replicas[call.receiver].calls.insert(number);
        self.replicas[call.server].calls.insert(number);
    }

    fn take(&mut self, number: u64) -> Option<Call> {
        let call = self.calls.remove(&number)?;
        for replica in [call.receiver, call.server] {
            self.replicas[replica].calls.remove(&number);
            self.end_if_done(replica);
        }
        Some(call)
    }

    fn answer(&mut self, number: u64) {
        let Some(call) = self.calls.get(&number).copied() else { return };
        // A call that was resumed ends later than planned, or its stream is away just now.
        if call.ends > self.now {
            return;
        }
        self.take(number);
        self.counts.add("calls answered");
        let pause = self.dice.around(self.plan.pause);
        self.at(self.now + pause, Event::Ask(call.session));
    }

    /// The calls of a replica that has ended break off.
    fn break_off(&mut self, number: usize) {
        for name in std::mem::take(&mut self.replicas[number].calls) {
            let Some(call) = self.take(name) else { continue };
            if self.sessions[call.session].has_child && call.server == number {
                // The client resumes and gets the error at once.
                self.counts.add("calls that ended with an error: their child died");
                self.at(self.now + RESUME, Event::Begin(call.session));
            } else {
                self.counts.add("streams that broke off");
                self.last_call += 1;
                let resumed = self.last_call;
                // Nobody serves it until its client is back.
                self.calls.insert(resumed, Call { ends: call.ends.max(self.now + RESUME), ..call });
                self.at(self.now + RESUME, Event::Resume(resumed));
            }
        }
    }

    fn resume(&mut self, number: u64) {
        let Some(call) = self.calls.remove(&number) else { return };
        let found = self.connect(call.session).map(|receiver| {
            let found = self.find(call.session, receiver);
            (receiver, found)
        });
        match found {
            None => {
                self.calls.insert(number, call);
                self.at(self.now + RESUME, Event::Resume(number));
            }
            Some((_, Found::Lost)) => {
                self.counts.add("calls that ended with an error: their child died");
                self.at(self.now + 1, Event::Begin(call.session));
            }
            Some((receiver, Found::At(server))) => {
                self.counts.add("streams resumed");
                let ends = call.ends.max(self.now);
                self.place(number, Call { receiver, server, ends, ..call });
                self.at(ends, Event::Answer(number));
            }
        }
    }

    fn kill(&mut self) {
        let number = self.dice.below(self.plan.replicas as u64) as usize;
        if self.replicas[number].phase == Phase::Ready {
            self.counts.add("replicas killed");
            self.die(number);
        }
        self.at(self.now + self.plan.kill_every * 1000, Event::Kill);
    }

    fn die(&mut self, number: usize) {
        self.replicas[number].phase = Phase::Dead;
        self.break_off(number);
        self.at(self.now + NOTICED, Event::Notice(number));
        self.at(self.now + RESTART, Event::Restart(number));
    }

    /// Ends a group of replicas by SIGTERM.
    fn roll(&mut self, first: usize) {
        let last = (first + self.plan.roll).min(self.plan.replicas);
        for number in first..last {
            if self.replicas[number].phase == Phase::Ready {
                self.counts.add("replicas rolled");
                self.replicas[number].phase = Phase::Lingering;
                self.at(self.now + NOTICED, Event::Notice(number));
                self.at(self.now + LINGER, Event::Close(number));
            }
        }
        let next = if last == self.plan.replicas { 0 } else { last };
        self.at(self.now + 60_000, Event::Roll(next));
    }

    fn close(&mut self, number: usize) {
        self.replicas[number].phase = Phase::Draining;
        let boot = self.replicas[number].owner.boot;
        self.at(self.now + DRAIN, Event::CutOff(number, boot));
        self.end_if_done(number);
    }

    fn end_if_done(&mut self, number: usize) {
        let replica = &mut self.replicas[number];
        if replica.phase == Phase::Draining && replica.calls.is_empty() {
            replica.phase = Phase::Dead;
            self.at(self.now + RESTART, Event::Restart(number));
        }
    }

    fn cut_off(&mut self, number: usize, boot: u64) {
        let replica = &self.replicas[number];
        if replica.phase == Phase::Draining && replica.owner.boot == boot {
            self.counts.add("replicas that had open calls at the end of their drain");
            self.die(number);
        }
    }

    fn restart(&mut self, number: usize) {
        if self.replicas[number].phase != Phase::Dead {
            return;
        }
        // Half of the places keep their addresses, as in a StatefulSet; the others move, as in a Deployment.
        let owner = self.new_process(number, number.is_multiple_of(2));
        let replica = &mut self.replicas[number];
        (replica.owner, replica.phase) = (owner, Phase::Ready);
        replica.down.clear();
        self.at(self.now + NOTICED, Event::Notice(number));
    }

    fn notice(&mut self, number: usize) {
        let is_ready = self.replicas[number].phase == Phase::Ready;
        match self.ready.binary_search(&number) {
            Ok(place) if !is_ready => drop(self.ready.remove(place)),
            Err(place) if is_ready => self.ready.insert(place, number),
            _ => {}
        }
    }

    /// Panics if a call has ended neither with an answer nor with an error.
    fn check(&self) {
        assert!(self.calls.is_empty(), "{} calls have no end", self.calls.len());
        let counts = &self.counts;
        let ends = [
            "calls answered",
            "calls that ended with an error: their child died",
            "calls answered with 404: the child ended before",
            "calls that no replica took",
        ];
        let ended: u64 = ends.iter().map(|name| counts.of(name)).sum();
        assert_eq!(counts.of("calls"), ended, "{counts:#?}");
    }
}

fn say(out: &mut impl Write, line: impl Display) {
    let _ = writeln!(out, "{line}");
}

fn main() {
    let plan = Plan::parse();
    let begun = std::time::Instant::now();
    let mut world = World::new(plan.clone());
    world.play();
    world.check();
    let (out, seconds) = (&mut std::io::stdout(), plan.minutes * 60);
    say(
        out,
        format_args!(
            "{} replicas, {} sessions, {} minutes",
            plan.replicas, plan.sessions, plan.minutes
        ),
    );
    for (name, count) in &world.counts.0 {
        let rate = *count as f64 / seconds as f64;
        say(out, format_args!("{count:>10}  {rate:>9.2}/s  {name}"));
    }
    say(out, format_args!("played in {:.1} s", begun.elapsed().as_secs_f64()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(change: impl FnOnce(&mut Plan)) -> Counts {
        let mut plan =
            Plan::parse_from(["", "--sessions", "3000", "--minutes", "3", "--pause", "10"]);
        change(&mut plan);
        let mut world = World::new(plan);
        world.play();
        world.check();
        world.counts
    }

    #[test]
    fn a_quiet_fleet_of_a_thousand_passes_nearly_all_on_and_loses_nothing() {
        let counts = played(|plan| (plan.kill_every, plan.roll) = (0, 0));
        assert_eq!(counts.of("calls"), counts.of("calls answered"));
        assert_eq!(counts.of("sessions begun"), 3000);
        let passed_on = counts.of("requests passed on") as f64 / counts.of("requests") as f64;
        assert!(passed_on > 0.99, "{passed_on}");
        let sticky = played(|plan| (plan.kill_every, plan.roll, plan.sticky) = (0, 0, 100));
        assert_eq!(sticky.of("requests passed on"), 0);
    }

    #[test]
    fn a_rollout_refuses_nobody_and_ends_only_sessions_of_children() {
        let counts = played(|plan| (plan.kill_every, plan.children) = (0, 0));
        assert!(counts.of("replicas rolled") >= 200);
        assert_eq!(counts.of("sessions that no replica took"), 0);
        assert_eq!(counts.of("calls that no replica took"), 0);
        assert_eq!(counts.of("calls"), counts.of("calls answered"));
        assert_eq!(counts.of("sessions begun"), 3000, "no session of an HTTP server is lost");
        let counts = played(|plan| (plan.kill_every, plan.children) = (0, 100));
        assert_eq!(counts.of("connections refused to the balancer"), 0);
        let lost = counts.of("calls answered with 404: the child ended before")
            + counts.of("calls that ended with an error: their child died");
        let begun = counts.of("sessions begun");
        assert!(lost > 0 && (3000..=3000 + lost).contains(&begun), "{begun}, {lost}");
    }

    #[test]
    fn kills_and_rollouts_leave_no_call_without_an_end() {
        for seed in 1..=5 {
            for store in [false, true] {
                let counts = played(|plan| {
                    (plan.seed, plan.store, plan.kill_every, plan.roll) = (seed, store, 1, 200);
                });
                assert!(counts.of("replicas killed") > 100);
                assert!(counts.of("streams resumed") > 0);
            }
        }
    }
}
