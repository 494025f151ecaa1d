//! The messages that a stream keeps, and their time.

use super::limits::{EVENTS_MAX, TAKEN_MAX};
use super::*;
use crate::transport::byte_budget::ByteBudget;
use crate::transport::http::body::Batch;

#[test]
fn what_was_taken_where_nobody_comes_back_is_not_kept() {
    let read = |ids: bool, rounds: i64| {
        let buffer = ReplayBuffer::new(StreamId(1), false, false, Arc::default());
        let client = buffer.attach(None);
        for number in 0..rounds {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#);
            buffer.put(&TransmitKind::Answer(Some(Key::Integer(number))), &text.into());
            client.events(ids, &mut Batch::default());
            client.acknowledge();
        }
        let state = buffer.lock();
        (state.messages.len(), state.bytes > 0)
    };
    assert_eq!(read(false, 5000), (0, false));
    assert_eq!(read(true, 3), (3, true));
    assert_eq!(read(true, 5000), (EVENTS_MAX, true));
}

#[test]
fn what_clients_of_a_session_have_taken_has_a_total() {
    let signals = Arc::<SessionSignals>::default();
    let answer = |buffer: &Arc<ReplayBuffer>, bytes: usize| {
        let client = buffer.attach(None);
        // One of two requests stays open, so that the stream is not over.
        buffer.expect([1, 2].map(|id| (Key::Integer(id), Bytes::new())));
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "x".repeat(bytes));
        buffer.put(&TransmitKind::Answer(Some(Key::Integer(1))), &text.into());
        client.events(true, &mut Batch::default());
        client.acknowledge();
    };
    let buffers: Vec<_> = (0..100)
        .map(|id| ReplayBuffer::new(StreamId(id), false, false, Arc::clone(&signals)))
        .inspect(|buffer| answer(buffer, 4 << 20))
        .collect();
    let kept = |buffers: &[Arc<ReplayBuffer>]| -> usize {
        buffers.iter().map(|buffer| buffer.lock().bytes).sum()
    };
    assert!((8 << 20..=TAKEN_MAX).contains(&kept(&buffers)), "{}", kept(&buffers));
    assert_eq!(signals.taken().held(), kept(&buffers));
    // A client can come back to what it has not taken.
    let last = buffers.last().unwrap();
    drop(last.attach(None));
    last.put(&TransmitKind::Answer(Some(Key::Integer(2))), &Bytes::from_static(b"{}"));
    assert_eq!(last.lock().messages.len(), 1);
    drop(buffers);
    assert_eq!(signals.taken().held(), 0);
}

#[test]
fn taken_answers_of_a_session_draw_from_the_budget_of_all() {
    let budget = Arc::<ByteBudget>::default();
    budget.set_max(4 << 20);
    let take = |session: &Arc<SessionSignals>, answers: usize| {
        let buffer = ReplayBuffer::new(StreamId(1), false, false, Arc::clone(session));
        buffer.expect((0..=answers).map(|_| (Key::Integer(9), Bytes::new())));
        let client = buffer.attach(None);
        for _ in 0..answers {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "x".repeat(100 << 10));
            buffer.put(&TransmitKind::Answer(Some(Key::Integer(1))), &text.into());
            client.events(true, &mut Batch::default());
            client.acknowledge();
        }
        drop(client);
        buffer
    };
    let share = budget.share(Some(1));
    let (one, other) =
        (Arc::new(SessionSignals::new(&share)), Arc::new(SessionSignals::new(&share)));
    let kept = [take(&one, 20), take(&other, 20)];
    // A client has a quarter, and the session that came first keeps what it has.
    let bytes = kept.each_ref().map(|buffer| buffer.lock().bytes);
    assert!(bytes[0] > 900 << 10 && bytes[1] <= 128 << 10, "{bytes:?}");
    assert!(budget.held() <= 1 << 20, "{}", budget.held());
    drop(kept);
    assert_eq!(budget.held(), 0);
}

fn ask(buffer: &ReplayBuffer, number: usize, text: &str) {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping","x":"{text}"}}"#);
    buffer.put(&TransmitKind::Request, &text.into());
}

/// 120,000 requests took half a minute where each looked at all before it.
#[test]
fn the_oldest_requests_that_nobody_has_read_are_refused() {
    let buffer = ReplayBuffer::new(StreamId(1), false, false, Arc::default());
    (0..120_000).for_each(|number| ask(&buffer, number, ""));
    let refused = buffer.take_refused();
    assert_eq!((refused.len(), buffer.lock().messages.len()), (120_000 - EVENTS_MAX, EVENTS_MAX));
    assert_eq!((&refused[0][..], &refused[refused.len() - 1][..]), (&b"0"[..], &b"118999"[..]));
    // A request that a client has read waits for its answer.
    let client = buffer.attach(None);
    for _ in 0..EVENTS_MAX {
        client.events(true, &mut Batch::default());
        client.acknowledge();
    }
    ask(&buffer, 120_000, "");
    assert_eq!(buffer.take_refused(), [""; 0]);
}

/// An answer that waits loses nothing to requests.
#[test]
fn requests_go_before_answers() {
    let buffer = ReplayBuffer::new(StreamId(1), false, false, Arc::default());
    let answer = Bytes::from(vec![b'x'; 10 << 20]);
    buffer.put(&TransmitKind::Answer(None), &answer);
    (0..9).for_each(|number| ask(&buffer, number, &"y".repeat(1 << 20)));
    assert_eq!(buffer.take_refused(), ["0", "1", "2", "3"]);
    assert_eq!(buffer.lock().messages[0].pieces, [answer]);
}

/// A message that comes between two pieces of a large message follows the large message.
#[test]
fn a_large_message_is_whole_whatever_comes_between_its_pieces() {
    let buffer = ReplayBuffer::new(StreamId(1), false, false, Arc::default());
    let client = buffer.attach(None);
    let request = Scan::default();
    let (first, _) = buffer.begin(Kind::Request, None, &Bytes::from_static(b"{\"a\":"));
    let (second, _) = buffer.begin(Kind::Notification, None, &Bytes::from_static(b"{\"b\":"));
    ask(&buffer, 7, "");
    let mut out = Batch::default();
    client.events(false, &mut out);
    buffer.more(second, &Bytes::from_static(b"2}"), Some(&request));
    buffer.more(first, &Bytes::from_static(b"1}"), Some(&request));
    client.events(false, &mut out);
    let mut text = Vec::new();
    while let Some(bytes) = out.take() {
        text.extend_from_slice(&bytes);
    }
    let text = String::from_utf8(text).unwrap();
    let data: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.len(), 3, "{text}");
    assert_eq!(data[..2], [r#"{"a":1}"#, r#"{"b":2}"#]);
}
