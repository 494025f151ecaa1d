//! The signals to the relay of a session (`gateway/bridge/signals.rs`).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use http::StatusCode;
use loom::future::block_on;
use loom::thread;
use milepost::progress::StreamId;

use crate::gateway::bridge::signals::{Broken, SessionSignals};

pub(crate) const MODELS: &[(&str, fn())] = &[
    ("bell: the relay hears of every stream", every_stream_is_heard),
    ("bell: the relay hears of the end, and of the first reason", the_first_end_counts),
    ("bell: slow clients are counted", slow_clients_are_counted),
];

fn every_stream_is_heard() {
    let signals = Arc::<SessionSignals>::default();
    let clients = [1, 2].map(|id| {
        let signals = Arc::clone(&signals);
        thread::spawn(move || {
            signals.mark_drained(StreamId(id));
            signals.mark_disconnected(StreamId(id));
        })
    });
    let (mut drained, mut disconnected) = (0, 0);
    block_on(poll_fn(|cx| {
        signals.register(cx);
        drained += std::iter::from_fn(|| signals.next_drained()).count();
        disconnected += std::iter::from_fn(|| signals.next_disconnected()).count();
        if (drained, disconnected) == (2, 2) { Poll::Ready(()) } else { Poll::Pending }
    }));
    clients.into_iter().for_each(|client| client.join().unwrap());
}

fn the_first_end_counts() {
    let signals = Arc::<SessionSignals>::default();
    let enders = [StatusCode::OK, StatusCode::GONE].map(|status| {
        let signals = Arc::clone(&signals);
        thread::spawn(move || signals.end(Broken { status, why: "a model" }))
    });
    let first = block_on(poll_fn(|cx| {
        signals.register(cx);
        signals.ended().map_or(Poll::Pending, Poll::Ready)
    }));
    enders.into_iter().for_each(|ender| ender.join().unwrap());
    assert_eq!(signals.ended().unwrap().status, first.status);
}

fn slow_clients_are_counted() {
    let signals = Arc::<SessionSignals>::default();
    let clients = [(); 2].map(|()| {
        let signals = Arc::clone(&signals);
        thread::spawn(move || {
            signals.add_slow_client();
            assert!(signals.is_slow());
            signals.remove_slow_client();
        })
    });
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(!signals.is_slow());
}
