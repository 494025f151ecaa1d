//! The waker of a connection that its reader drives (`transport/http/link_waker.rs`).

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use loom::future::block_on;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use crate::link_waker::LinkSignal;

pub(crate) const MODELS: &[(&str, fn())] = &[
    ("link: what arrives reaches the reader", what_arrives_is_read),
    (
        "link: what arrives while the two halves wake each other reaches the reader",
        halves_may_wake_each_other,
    ),
];

/// Reads until `count` things have arrived, and calls `beside` in each poll.
fn read(count: usize, beside: impl Fn(&LinkSignal)) {
    let signal = Arc::new(LinkSignal::new());
    let arrived = Arc::new(AtomicUsize::new(0));
    let senders: Vec<_> = (0..count)
        .map(|_| {
            let (signal, arrived) = (Arc::clone(&signal), Arc::clone(&arrived));
            thread::spawn(move || {
                arrived.fetch_add(1, Ordering::AcqRel);
                signal.wake();
            })
        })
        .collect();
    block_on(poll_fn(|cx| {
        signal.poll(cx, Waker::noop(), |_| {
            let all = arrived.load(Ordering::Acquire) == count;
            beside(&signal);
            if all { Poll::Ready(()) } else { Poll::Pending }
        })
    }));
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

fn what_arrives_is_read() {
    read(2, |_| {});
}

fn halves_may_wake_each_other() {
    // As often as the reader polls in a row, and once more.
    let left = Cell::new(3_usize);
    read(1, |signal| {
        if left.replace(left.get().saturating_sub(1)) > 0 {
            signal.wake();
        }
    });
}
