//! Measures the bytes of heap that a session needs.

use std::sync::Arc;

use milepost_core::progress::Policy;

use crate::apart::Apart;
use crate::joint::Joint;
use crate::load::{Clock, Load, begun, round};
use crate::shell::Session;

/// Number of sessions in this benchmark: the number of streams that the proxy serves for one server at the same time.
const SESSIONS: usize = 9_900;

const SMALL: Load = Load { reports: 0, invents: false, open: 1, reuses: false };

/// Returns the number of bytes that are still allocated after `build`.
fn held<T>(build: impl FnOnce() -> T) -> i64 {
    let mut built = None;
    let counted = allocation_counter::measure(|| built = Some(build()));
    drop(built);
    counted.bytes_current
}

/// Returns a boxed session that has served this number of small requests.
fn session<S: Session>(policy: &Arc<Policy>, clock: &mut Clock, requests: usize) -> Box<S> {
    let session = Box::new(begun(policy, clock));
    for first in 0..requests {
        round::<S>(&session, &SMALL.scripts(first), || clock.next(), |_| {});
    }
    session
}

/// Returns the bytes that open requests add to an idle session. Each request has had two reports.
fn with_open<S: Session>(policy: &Arc<Policy>, open: usize) -> i64 {
    let mut clock = Clock::new();
    let session: Box<S> = session(policy, &mut clock, 3);
    held(|| {
        let scripts = Load { reports: 2, open, ..SMALL }.scripts(100);
        let opened = scripts.iter().map(|script| {
            let mut request = session.open(clock.next(), &script.request, &script.members);
            for events in &script.reads {
                session.read(&mut request, clock.next(), events);
            }
            request
        });
        opened.collect::<Vec<_>>()
    })
}

fn rows<S: Session>() -> Vec<(String, i64)> {
    let policy = Arc::new(Policy::default());
    let rest = |requests| held(|| session::<S>(&policy, &mut Clock::new(), requests));
    let all = held(|| {
        let sessions = (0..SESSIONS).map(|_| session::<S>(&policy, &mut Clock::new(), 3));
        sessions.collect::<Vec<_>>()
    });
    vec![
        ("a session after the handshake".to_owned(), rest(0)),
        ("a session after 3 requests".to_owned(), rest(3)),
        ("a session after 10,000 requests".to_owned(), rest(10_000)),
        ("9,900 sessions after 3 requests".to_owned(), all),
        ("1 open request, beyond its session".to_owned(), with_open::<S>(&policy, 1)),
        ("32 open requests, beyond their session".to_owned(), with_open::<S>(&policy, 32)),
    ]
}

pub(crate) fn print() {
    println!("| heap of | today | one filter |");
    println!("|---|--:|--:|");
    for ((of, apart), (_, joint)) in rows::<Apart>().into_iter().zip(rows::<Joint>()) {
        println!("| {of} | {apart} B | {joint} B |");
    }
    println!();
}
