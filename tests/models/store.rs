//! The replay buffer of a stream and its readers (`gateway/bridge/replay_buffer.rs`,
//! `gateway/bridge/subscription.rs`).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use loom::future::block_on;
use loom::thread;
use milepost::progress::{StreamId, TransmitKind};

use crate::gateway::bridge::replay_buffer::{ClientReads, OnDisconnect, ReplayBuffer};
use crate::gateway::bridge::signals::SessionSignals;
use crate::gateway::bridge::subscription::{EventForm, ReadStatus, Subscription};
use crate::parts::Batch;

pub(crate) const MODELS: &[(&str, fn())] = &[
    ("store: a reader gets all messages and the end", a_reader_gets_all),
    ("store: a reader that is replaced learns it", a_replaced_reader_learns_it),
    ("store: the first content wakes a response", the_first_content_wakes),
    ("store: the relay learns that its messages were taken", the_relay_learns_it),
    ("store: the relay learns that a client has left", the_relay_learns_who_left),
    ("store: what clients have taken is counted to the byte", what_was_taken_is_counted),
];

const MESSAGE: Bytes = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"m"}"#);

fn buffer() -> (Arc<ReplayBuffer>, Arc<SessionSignals>) {
    let signals = Arc::<SessionSignals>::default();
    let (reads, on_disconnect) = (ClientReads::Everything, OnDisconnect::Cancels);
    let own = Arc::clone(&signals);
    (ReplayBuffer::naming(None, StreamId(1), reads, on_disconnect, own), signals)
}

/// Reads to the end, as the body of a response does. Returns the bytes.
fn read(client: &Subscription) -> (ReadStatus, String) {
    let mut out = Batch::default();
    let status = block_on(poll_fn(|cx| {
        client.register(cx);
        match client.events(EventForm::WithIds, &mut out) {
            ReadStatus::On => {
                client.acknowledge();
                Poll::Pending
            }
            ended => Poll::Ready(ended),
        }
    }));
    (status, String::from_utf8(out.0).unwrap())
}

fn a_reader_gets_all() {
    let (buffer, _signals) = buffer();
    let client = buffer.attach(None);
    let relay = thread::spawn(move || {
        buffer.put(&TransmitKind::Other, &MESSAGE);
        buffer.put(&TransmitKind::Other, &MESSAGE);
        buffer.end();
    });
    let (status, text) = read(&client);
    assert_eq!((status, text.matches("data: ").count()), (ReadStatus::Over, 2));
    relay.join().unwrap();
}

fn a_replaced_reader_learns_it() {
    let (buffer, _signals) = buffer();
    let first = buffer.attach(None);
    let own = Arc::clone(&buffer);
    let second = thread::spawn(move || {
        let second = own.attach(None);
        own.put(&TransmitKind::Other, &MESSAGE);
        own.end();
        read(&second).0
    });
    let (status, _) = read(&first);
    assert!(matches!(status, ReadStatus::Elsewhere));
    assert_eq!(second.join().unwrap(), ReadStatus::Over);
}

fn the_first_content_wakes() {
    let (buffer, _signals) = buffer();
    let client = buffer.attach(None);
    let own = Arc::clone(&buffer);
    let relay = thread::spawn(move || own.put(&TransmitKind::Other, &MESSAGE));
    block_on(poll_fn(|cx| client.poll_first_response(cx)));
    assert!(relay.join().unwrap());
    let own = Arc::clone(&buffer);
    let relay = thread::spawn(move || own.end());
    block_on(poll_fn(|cx| client.poll_over(cx)));
    relay.join().unwrap();
}

/// Waits as the relay does, until the client has taken what there is.
fn wait_until_drained(buffer: &ReplayBuffer, signals: &SessionSignals) {
    block_on(poll_fn(|cx| {
        signals.register(cx);
        while signals.next_drained().is_some() {
            if !buffer.is_unread() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }));
}

fn the_relay_learns_it() {
    let (buffer, signals) = buffer();
    let client = buffer.attach(None);
    assert!(buffer.put(&TransmitKind::Other, &MESSAGE));
    let client = thread::spawn(move || {
        client.events(EventForm::WithIds, &mut Batch::default());
        client.acknowledge();
        client
    });
    wait_until_drained(&buffer, &signals);
    assert_eq!(buffer.unread(), 0);
    drop(client.join().unwrap());
}

fn the_relay_learns_who_left() {
    let (buffer, signals) = buffer();
    buffer.expect([]);
    let client = buffer.attach(None);
    buffer.put(&TransmitKind::Other, &MESSAGE);
    let client = thread::spawn(move || drop(client));
    wait_until_drained(&buffer, &signals);
    block_on(poll_fn(|cx| {
        signals.register(cx);
        signals.next_disconnected().map_or(Poll::Pending, |_| Poll::Ready(()))
    }));
    assert!(buffer.is_given_up());
    client.join().unwrap();
}

fn what_was_taken_is_counted() {
    let signals = Arc::<SessionSignals>::default();
    let large: Bytes = vec![b' '; 70 << 10].into();
    let clients = [1, 2].map(|id| {
        let (large, signals) = (large.clone(), Arc::clone(&signals));
        thread::spawn(move || {
            let buffer = ReplayBuffer::new(StreamId(id), signals);
            let client = buffer.attach(None);
            buffer.begin(milepost::protocol::jsonrpc::Kind::Notification, None, &large);
            buffer.put(&TransmitKind::Other, &MESSAGE);
            client.events(EventForm::WithIds, &mut Batch::default());
            client.acknowledge();
        })
    });
    clients.into_iter().for_each(|client| client.join().unwrap());
    let left = signals.kept().held();
    assert_eq!(left, 0, "nothing is kept when all streams are gone");
}
