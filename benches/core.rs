//! Measures what the core costs for each kind of message, for an event, for a line of text, and for sealing and opening
//! a session id of a fleet. For comparison, it measures copying a large message twice on the same machine: inspecting
//! the message should be cheaper.
//!
//! `cargo bench --bench core`
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use milepost::gateway::fleet::seal::{IdBinding, IdKind, Opened, Owner, Seal};
use milepost::observe::calls::{Table, TapReader, Watch};
use milepost::observe::events::{EventEmitter, FilterId, ObserverFactory, Scope};
use milepost::progress::extract::Extract;
use milepost::progress::input::Input;
use milepost::progress::policy::masks::Masks;
use milepost::progress::{
    CallPolicy, Filter, NameKey, Origin, Pacing, Policy, StreamId, StreamKind, StreamPacing,
};
use milepost::protocol::jsonrpc::Message;
use milepost::protocol::lines::INSPECT_MAX;
use milepost::protocol::sse::{Events, SseFrame};
use milepost::protocol::terminal::Terminal;
use milepost::relay::filter_guard::FilterGuard;

const WIRE: StreamId = StreamId(0);

/// Returns the default policy without pacing.
fn immediate() -> Policy {
    let call = CallPolicy { pacing: Pacing::IMMEDIATE, ..CallPolicy::default() };
    Policy { call, ..Policy::default() }
}

struct Core {
    filter: Filter,
    now: Instant,
}

impl Core {
    fn new() -> Self {
        let policy = immediate();
        let mut filter = Filter::new(policy);
        filter.open_stream(WIRE, StreamKind::Shared, StreamPacing::Immediate);
        let mut core = Self { filter, now: Instant::now() };
        core.ask();
        core
    }

    fn ask(&mut self) {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"scan","_meta":{"progressToken":1}}}"#;
        let message = Message::parse(Bytes::from_static(text.as_bytes()));
        self.filter.client_message(self.now, WIRE, &message);
    }

    /// Passes one message of the server all the way to the client. Returns the number of bytes that the client gets.
    fn serve(&mut self, raw: &Bytes) -> usize {
        // Notifications are thinned to one in 100 ms, so let more time pass.
        self.now += Duration::from_millis(101);
        let message = Message::parse(raw.clone());
        self.filter.server_message(self.now, Origin::Shared, &message);
        let mut written = 0;
        while let Some(transmit) = self.filter.poll_transmit(self.now, WIRE) {
            written += transmit.payload.len();
        }
        self.filter.written(self.now, WIRE);
        while self.filter.poll_event().is_some() {}
        black_box(self.filter.poll_timeout());
        written
    }
}

/// A notification of about 200 bytes.
fn progress(token: &str, figure: u64) -> Bytes {
    let words = "Indexing the source tree: 1,204 of 5,520 files, about two minutes left";
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{figure},"total":1000000000,"message":"{words}"}}}}"#
    ))
}

fn log() -> Bytes {
    let words = "Indexing the source tree: 1,204 of 5,520 files, about two minutes are left";
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","logger":"scan","data":"{words}, if all goes well"}}}}"#
    ))
}

/// A result with `size` bytes of text: lines of source code of 60 bytes.
fn text(size: usize) -> String {
    let line = r"    let found = self.members.iter().find(|m| m.name == n);\n";
    format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, line.repeat(size / line.len()))
}

/// A result with `size` bytes of rows, as from a database.
fn dense(size: usize) -> String {
    let row = |n: usize| format!(r#"{{"key":{n},"name":"n{n}","tags":["a","b"],"at":[{n},1.5]}}"#);
    let mut rows = String::new();
    for n in 0.. {
        rows.push_str(&row(n));
        if rows.len() >= size {
            break;
        }
        rows.push(',');
    }
    format!(r#"{{"content":[],"structuredContent":{{"rows":[{rows}]}}}}"#)
}

fn id_first(result: &str) -> Bytes {
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#))
}

fn id_last(result: &str) -> Bytes {
    Bytes::from(format!(r#"{{"result":{result},"jsonrpc":"2.0","id":1}}"#))
}

fn notifications(c: &mut Criterion) {
    let mut group = c.benchmark_group("notification of 200 bytes");
    for (name, token) in [("forwarded", "1"), ("repaired", "\"shell_01\"")] {
        let mut core = Core::new();
        let mut figure = 0;
        group.bench_function(name, |b| {
            b.iter_batched(
                || {
                    figure += 1;
                    progress(token, figure)
                },
                |raw| core.serve(&raw),
                criterion::BatchSize::SmallInput,
            );
        });
    }
    let (mut core, raw) = (Core::new(), log());
    group.bench_function("log", |b| b.iter(|| core.serve(&raw)));
    group.finish();
}

fn results(c: &mut Criterion) {
    let mut group = c.benchmark_group("result");
    for (name, raw) in [
        ("2 KB", id_first(&text(2 << 10))),
        ("1 MB of text, id first", id_first(&text(1 << 20))),
        ("1 MB of text, id last", id_last(&text(1 << 20))),
        ("1 MB of rows, id first", id_first(&dense(1 << 20))),
        ("1 MB of rows, id last", id_last(&dense(1 << 20))),
    ] {
        let mut core = Core::new();
        group.throughput(Throughput::Bytes(raw.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                core.ask();
                core.serve(&raw)
            });
        });
    }
    let raw = id_first(&text(1 << 20));
    group.throughput(Throughput::Bytes(raw.len() as u64));
    group.bench_function("1 MB copied twice", |b| {
        b.iter(|| black_box(black_box(raw.to_vec()).clone()).len());
    });
    group.finish();
}

/// A tool call and its answer two seconds later, with late answers and tasks disabled and enabled. The client does not
/// give the call up, and does not run it as a task: these are the costs that every call has.
fn late(c: &mut Criterion) {
    let mut group = c.benchmark_group("late: a call and its answer");
    for (name, late, tasks) in
        [("off", false, false), ("on", true, false), ("with tasks on", true, true)]
    {
        let mut policy = immediate();
        policy.call.late.enabled = late;
        policy.call.tasks.enabled = tasks;
        let mut now = Instant::now();
        let mut filter = Filter::new(policy);
        filter.open_stream(WIRE, StreamKind::Shared, StreamPacing::Immediate);
        if tasks {
            let key = NameKey::new([7; 16]);
            filter.handle(now, &Input::EnableTasks(key, 1_764_073_496_000));
        }
        let mut number = 0;
        group.bench_function(name, |b| {
            b.iter_batched(
                || {
                    number += 1;
                    let call = format!(
                        r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"scan","arguments":{{"path":"/srv/data","depth":4,"follow":true,"pattern":"report-*.csv","limit":{number}}},"_meta":{{"progressToken":{number}}}}}}}"#
                    );
                    let answer = format!(
                        r#"{{"jsonrpc":"2.0","id":{number},"result":{{"content":[{{"type":"text","text":"done: 1204 files, 17 of them new"}}]}}}}"#
                    );
                    (Bytes::from(call), Bytes::from(answer))
                },
                |(call, answer)| {
                    black_box(filter.client_message(now, WIRE, &Message::parse(call)));
                    now += Duration::from_secs(2);
                    filter.server_message(now, Origin::Shared, &Message::parse(answer));
                    while let Some(transmit) = filter.poll_transmit(now, WIRE) {
                        black_box(transmit);
                    }
                    filter.written(now, WIRE);
                    while filter.poll_event().is_some() {}
                    black_box(filter.poll_timeout());
                },
                criterion::BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// Reads the events of a stream that comes in chunks of 8 KiB, and takes their payload.
fn events(c: &mut Criterion) {
    let mut group = c.benchmark_group("event");
    for (name, size) in [("200 B", 200), ("2 KB", 2 << 10), ("200 KB", 200 << 10)] {
        let payload = "x".repeat(size - "event: message\ndata: \n\n".len());
        let event = format!("event: message\ndata: {payload}\n\n");
        let stream = event.repeat((256 << 10) / size);
        let chunks: Vec<Bytes> =
            stream.as_bytes().chunks(8 << 10).map(Bytes::copy_from_slice).collect();
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(name, |b| {
            b.iter_custom(|wanted| {
                let (mut events, mut seen) = (Events::new(INSPECT_MAX), 0);
                let began = Instant::now();
                for chunk in chunks.iter().cycle() {
                    events.push(chunk.clone());
                    while let Some(frame) = events.next() {
                        let SseFrame::Event(event) = frame else { unreachable!() };
                        black_box(event.data());
                        seen += 1;
                    }
                    if seen >= wanted {
                        break;
                    }
                }
                // The last chunk may have more events than were requested.
                began.elapsed().mul_f64(wanted as f64 / seen as f64)
            });
        });
    }
    group.finish();
}

/// Progress of 200 bytes on the stream of its request, without and with the table of calls for operators.
fn watched(c: &mut Criterion) {
    let mut group = c.benchmark_group("progress on its own stream");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"scan","_meta":{"progressToken":1}}}"#;
    let call = Message::parse(Bytes::from_static(call.as_bytes()));
    for (kind, token) in [("forwarded", "1"), ("repaired", "\"shell_01\"")] {
        for name in ["alone", "looked on at", "tapped"] {
            let policy = Arc::new(immediate());
            let mut filter = Filter::new(Arc::clone(&policy));
            filter.open_stream(WIRE, StreamKind::Exchange, StreamPacing::Immediate);
            let mut filter = FilterGuard::new(filter, Arc::clone(&policy), WIRE);
            let mut now = Instant::now();
            let table = Table::new([]);
            if name != "alone" {
                let id = FilterId { conversation: 1, filter: 1 };
                let watch = Watch { table: Arc::clone(&table) };
                let observer = watch.begin(id, "/r", Scope::Exchange, &policy);
                filter.set_emitter(EventEmitter::new(id, now, observer.into_iter().collect()));
            }
            let tap = (name == "tapped").then(|| TapReader::begin(&table, Default::default()));
            filter.client_message(now, WIRE, &call);
            let mut figure = 0;
            group.bench_function(format!("{kind}/{name}"), |b| {
                b.iter_batched(
                    || {
                        figure += 1;
                        progress(token, figure)
                    },
                    |raw| {
                        now += Duration::from_millis(101);
                        if !filter.fast_path(now, WIRE, &raw) {
                            let message = Message::parse(raw);
                            filter.server_message(now, Origin::Stream(WIRE), &message);
                            while let Some(transmit) = filter.poll_transmit(now, WIRE) {
                                black_box(transmit);
                            }
                        }
                        filter.apply(now, Input::MarkWritten(WIRE));
                        while filter.poll_event().is_some() {}
                    },
                    criterion::BatchSize::SmallInput,
                );
            });
            drop(tap);
        }
    }
    group.finish();
}

/// Lines of text that may be progress, as a terminal shows them.
fn lines(c: &mut Criterion) {
    let (extract, masks) = (Extract::presets(), Masks::default());
    let mut group = c.benchmark_group("line");
    for (name, line) in [
        ("plain", "Listening for what clients have to say, on standard input"),
        ("path", "GET /items/17 took 12 ms and was answered from /var/cache"),
        ("bar", " 45%|####5     | 45/100 [00:02<00:03, 18.5it/s]"),
    ] {
        group.throughput(Throughput::Bytes(line.len() as u64));
        group.bench_function(format!("figure/{name}"), |b| {
            b.iter(|| extract.figure(black_box(line)))
        });
        group.bench_function(format!("mask/{name}"), |b| b.iter(|| masks.mask(black_box(line))));
        let (mut terminal, drawn) = (Terminal::default(), format!("\r{line}\n"));
        group.bench_function(format!("terminal/{name}"), |b| {
            b.iter(|| {
                terminal.feed(drawn.as_bytes(), &mut |shown| {
                    black_box(shown);
                })
            });
        });
    }
    group.finish();
}

/// The sealed session id of a fleet: a server's UUID is sealed and opened.
fn sealed_ids(c: &mut Criterion) {
    let mut group = c.benchmark_group("id of a fleet");
    let seal = Seal::new([&[7; 32], &[8; 32]]).unwrap();
    let owner = Owner { address: "10.0.0.1:7334".parse().unwrap(), boot: 9 };
    let to = IdBinding { kind: IdKind::Session, route: "/tools", principal: "header:ada" };
    let id = b"550e8400-e29b-41d4-a716-446655440000";
    let text = seal.seal(owner, id, [3; 12], &to).unwrap();
    assert!(matches!(seal.open(text.as_bytes(), &to), Opened::Sealed(_)));
    group.bench_function("seal", |b| b.iter(|| seal.seal(owner, black_box(id), [3; 12], &to)));
    group.bench_function("open", |b| b.iter(|| seal.open(black_box(text.as_bytes()), &to)));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = notifications, results, late, events, lines, watched, sealed_ids
}
criterion_main!(benches);
