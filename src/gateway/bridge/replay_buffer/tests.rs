//! Tests which messages a stream keeps, and for how long.

use super::limits::{EVENTS_MAX, SESSION_MAX};
use super::*;
use crate::gateway::bridge::subscription::{EventForm, ReadStatus};
use crate::protocol::jsonrpc::{Kind, Scan};
use crate::transport::byte_budget::ByteBudget;
use crate::transport::http::body::Batch;

#[test]
fn what_was_taken_where_nobody_comes_back_is_not_kept() {
    let read = |form: EventForm, rounds: i64| {
        let buffer = ReplayBuffer::new(StreamId(1), Arc::default());
        let client = buffer.attach(None);
        for number in 0..rounds {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#);
            buffer.put(&TransmitKind::Answer(Some(Key::Integer(number))), &text.into());
            client.events(form, &mut Batch::default());
            client.acknowledge();
        }
        let state = buffer.lock();
        (state.messages.len(), state.bytes > 0)
    };
    assert_eq!(read(EventForm::WithoutIds, 5000), (0, false));
    assert_eq!(read(EventForm::WithIds, 3), (3, true));
    assert_eq!(read(EventForm::WithIds, 5000), (EVENTS_MAX, true));
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
        client.events(EventForm::WithIds, &mut Batch::default());
        client.acknowledge();
    };
    let buffers: Vec<_> = (0..100)
        .map(|id| ReplayBuffer::new(StreamId(id), Arc::clone(&signals)))
        .inspect(|buffer| answer(buffer, 4 << 20))
        .collect();
    let kept = |buffers: &[Arc<ReplayBuffer>]| -> usize {
        buffers.iter().map(|buffer| buffer.lock().bytes).sum()
    };
    assert!((8 << 20..=SESSION_MAX).contains(&kept(&buffers)), "{}", kept(&buffers));
    assert_eq!(signals.kept().held(), kept(&buffers));
    // A client can reconnect for the messages that it has not read.
    let last = buffers.last().unwrap();
    drop(last.attach(None));
    last.put(&TransmitKind::Answer(Some(Key::Integer(2))), &Bytes::from_static(b"{}"));
    assert_eq!(last.lock().messages.len(), 1);
    drop(buffers);
    assert_eq!(signals.kept().held(), 0);
}

#[test]
fn taken_answers_of_a_session_draw_from_the_budget_of_all() {
    let budget = Arc::<ByteBudget>::default();
    budget.set_max(4 << 20);
    let take = |session: &Arc<SessionSignals>, answers: usize| {
        let buffer = ReplayBuffer::new(StreamId(1), Arc::clone(session));
        buffer.expect((0..=answers).map(|_| (Key::Integer(9), Bytes::new())));
        let client = buffer.attach(None);
        for _ in 0..answers {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "x".repeat(100 << 10));
            buffer.put(&TransmitKind::Answer(Some(Key::Integer(1))), &text.into());
            client.events(EventForm::WithIds, &mut Batch::default());
            client.acknowledge();
        }
        drop(client);
        buffer
    };
    let share = budget.share(Some(1));
    let (one, other) =
        (Arc::new(SessionSignals::new(&share)), Arc::new(SessionSignals::new(&share)));
    let kept = [take(&one, 20), take(&other, 20)];
    // A client gets a quarter, and the older session keeps its messages.
    let bytes = kept.each_ref().map(|buffer| buffer.lock().bytes);
    assert!(bytes[0] > 900 << 10 && bytes[1] <= 128 << 10, "{bytes:?}");
    assert!(budget.held() <= 1 << 20, "{}", budget.held());
    drop(kept);
    assert_eq!(budget.held(), 0);
}

/// Returns a stream of a session, with a request that stays open.
fn stream(session: &Arc<SessionSignals>) -> Arc<ReplayBuffer> {
    let buffer = ReplayBuffer::new(StreamId(1), Arc::clone(session));
    buffer.expect([(Key::Integer(99), Bytes::new())]);
    buffer
}

fn put_answer(buffer: &ReplayBuffer, id: i64, bytes: usize) {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{}"}}"#, "x".repeat(bytes));
    buffer.put(&TransmitKind::Answer(Some(Key::Integer(id))), &text.into());
}

/// Returns the text that a reconnecting client is sent.
fn sent(buffer: &Arc<ReplayBuffer>) -> String {
    let client = buffer.attach(None);
    let (mut text, mut out) = (Vec::new(), Batch::default());
    loop {
        client.events(EventForm::WithIds, &mut out);
        let before = text.len();
        while let Some(bytes) = out.take() {
            text.extend_from_slice(&bytes);
        }
        if text.len() == before {
            return String::from_utf8(text).unwrap();
        }
    }
}

/// Before there was a budget, 1,000 streams of clients that had left could keep 16 GB.
#[test]
fn answers_that_nobody_has_taken_draw_from_the_budget_and_the_newcomer_is_not_kept() {
    let budget = Arc::<ByteBudget>::default();
    budget.set_max(4 << 20);
    let share = budget.share(Some(1));
    let sessions = [(); 2].map(|()| Arc::new(SessionSignals::new(&share)));
    let [first, second] = sessions.each_ref().map(stream);
    (0..8).for_each(|id| put_answer(&first, id, 100 << 10));
    (10..15).for_each(|id| put_answer(&second, id, 100 << 10));
    // A client may use a quarter of the budget: 1 MiB.
    assert!(budget.held() <= 1 << 20, "{}", budget.held());
    let bytes = [&first, &second].map(|buffer| buffer.lock().bytes);
    assert_eq!(bytes.map(|bytes| bytes / (100 << 10)), [8, 2]);
    let text = sent(&second);
    let is_kept = |id| text.contains(&format!(r#""id":{id},"result""#));
    assert_eq!([10, 11, 12, 13, 14].map(is_kept), [true, true, false, false, false]);
    assert_eq!(text.matches("the answer could not be kept").count(), 3);
    // A short answer is kept although the budget is used up.
    let third = stream(&sessions[1]);
    put_answer(&third, 20, 1000);
    assert!(sent(&third).contains(r#""id":20,"result""#));
    // Room that one stream frees can be used by others.
    drop(first);
    put_answer(&third, 21, 100 << 10);
    assert!(sent(&third).contains(r#""id":21,"result""#));
    drop((second, third));
    assert_eq!(budget.held(), 0);
}

#[test]
fn a_client_that_is_there_is_sent_what_there_is_no_room_for() {
    let budget = Arc::<ByteBudget>::default();
    budget.set_max(1 << 20);
    let mut others = budget.room();
    others.count(1 << 20);
    let session = Arc::new(SessionSignals::new(&budget.share(None)));
    let buffer = stream(&session);
    let client = buffer.attach(None);
    for id in 0..3 {
        put_answer(&buffer, id, 300 << 10);
        let mut out = Batch::default();
        client.events(EventForm::WithIds, &mut out);
        let text: Vec<u8> = std::iter::from_fn(|| out.take()).flatten().collect();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(&format!(r#""id":{id},"result""#)) && text.len() > 300 << 10);
        client.acknowledge();
        assert_eq!((buffer.lock().bytes, budget.held()), (0, 1 << 20));
    }
    // Messages that the client had not read when it disconnected are dropped.
    put_answer(&buffer, 3, 300 << 10);
    assert_eq!(budget.held(), 1 << 20);
    drop(client);
    assert_eq!(buffer.lock().bytes, 0);
    assert!(sent(&buffer).contains("the answer could not be kept"));
    // With room in the budget the same message is kept.
    drop(others);
    put_answer(&buffer, 4, 300 << 10);
    assert!(sent(&buffer).contains(r#""id":4,"result""#));
}

#[test]
fn notifications_go_before_answers_and_the_server_gets_an_error_for_a_new_request() {
    let budget = Arc::<ByteBudget>::default();
    budget.set_max(1 << 20);
    let buffer = stream(&Arc::new(SessionSignals::new(&budget.share(None))));
    for _ in 0..4 {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"m","x":"{}"}}"#, "x".repeat(200 << 10));
        buffer.put(&TransmitKind::Other, &text.into());
    }
    (0..4).for_each(|id| put_answer(&buffer, id, 200 << 10));
    ask(&buffer, 7, &"y".repeat(500 << 10));
    assert_eq!(buffer.take_refused(), ["7"]);
    let text = sent(&buffer);
    assert_eq!((0..4).filter(|id| text.contains(&format!(r#""id":{id},"result""#))).count(), 4);
    assert_eq!(text.matches(r#""method":"m""#).count(), 0);
}

fn ask(buffer: &ReplayBuffer, number: usize, text: &str) {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping","x":"{text}"}}"#);
    buffer.put(&TransmitKind::Request, &text.into());
}

/// Fast only if a request need not search all earlier ones: 120,000 requests took half a minute when each did.
#[test]
fn the_oldest_requests_that_nobody_has_read_are_refused() {
    let buffer = ReplayBuffer::new(StreamId(1), Arc::default());
    (0..120_000).for_each(|number| ask(&buffer, number, ""));
    let refused = buffer.take_refused();
    assert_eq!((refused.len(), buffer.lock().messages.len()), (120_000 - EVENTS_MAX, EVENTS_MAX));
    assert_eq!((&refused[0][..], &refused[refused.len() - 1][..]), (&b"0"[..], &b"118999"[..]));
    // A request that a client has read stays, because its answer may come.
    let client = buffer.attach(None);
    for _ in 0..EVENTS_MAX {
        client.events(EventForm::WithIds, &mut Batch::default());
        client.acknowledge();
    }
    ask(&buffer, 120_000, "");
    assert_eq!(buffer.take_refused(), [""; 0]);
}

/// Requests are dropped before answers that wait.
#[test]
fn requests_go_before_answers() {
    let buffer = ReplayBuffer::new(StreamId(1), Arc::default());
    let answer = Bytes::from(vec![b'x'; 10 << 20]);
    buffer.put(&TransmitKind::Answer(None), &answer);
    (0..9).for_each(|number| ask(&buffer, number, &"y".repeat(1 << 20)));
    assert_eq!(buffer.take_refused(), ["0", "1", "2", "3"]);
    assert_eq!(buffer.lock().messages[0].pieces, [answer]);
}

/// A message that comes between two pieces of a large message follows the large message.
#[test]
fn a_large_message_is_whole_whatever_comes_between_its_pieces() {
    let buffer = ReplayBuffer::new(StreamId(1), Arc::default());
    let client = buffer.attach(None);
    let request = Scan::default();
    let (first, _) = buffer.begin(Kind::Request, None, &Bytes::from_static(b"{\"a\":"));
    let (second, _) = buffer.begin(Kind::Notification, None, &Bytes::from_static(b"{\"b\":"));
    ask(&buffer, 7, "");
    let mut out = Batch::default();
    client.events(EventForm::WithoutIds, &mut out);
    buffer.more(second, &Bytes::from_static(b"2}"), Some(&request));
    buffer.more(first, &Bytes::from_static(b"1}"), Some(&request));
    client.events(EventForm::WithoutIds, &mut out);
    let mut text = Vec::new();
    while let Some(bytes) = out.take() {
        text.extend_from_slice(&bytes);
    }
    let text = String::from_utf8(text).unwrap();
    let data: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.len(), 3, "{text}");
    assert_eq!(data[..2], [r#"{"a":1}"#, r#"{"b":2}"#]);
}

/// A client that has got half of a large answer; the rest does not come.
fn half_given(form: EventForm) -> (Arc<ReplayBuffer>, Subscription, u64) {
    let buffer = ReplayBuffer::new(StreamId(1), Arc::default());
    let client = buffer.attach(None);
    buffer.expect([(Key::Integer(1), Bytes::from_static(b"1"))]);
    let half = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"content":["half"#);
    let (number, _) = buffer.begin(Kind::Response, None, &half);
    let mut out = Batch::default();
    client.events(form, &mut out);
    (buffer, client, number)
}

fn rest_of(client: &Subscription, form: EventForm) -> String {
    let mut out = Batch::default();
    client.events(form, &mut out);
    let pieces = std::iter::from_fn(|| out.take());
    String::from_utf8(pieces.flatten().collect()).unwrap()
}

#[test]
fn half_an_answer_is_no_event_that_clients_read() {
    let why = Broken { status: http::StatusCode::BAD_GATEWAY, why: "the session broke off" };
    for form in [EventForm::WithIds, EventForm::WithoutIds] {
        let (buffer, client, _) = half_given(form);
        buffer.break_off(&why);
        let rest = rest_of(&client, form);
        assert!(rest.starts_with("\nevent: broken-off\n\nevent: message\ndata: {"), "{rest}");
        assert!(rest.contains("the session broke off"), "{rest}");
        // The session goes on.
        let (buffer, client, number) = half_given(form);
        buffer.break_off_message(number);
        let error = own_error(b"1", "unreadable", None);
        buffer.put(&TransmitKind::Answer(Some(Key::Integer(1))), &error);
        let rest = rest_of(&client, form);
        assert!(
            rest.starts_with("\nevent: broken-off\n\n") && rest.contains("unreadable"),
            "{rest}"
        );
        drop(client);
        let again = rest_of(&buffer.attach(Some(0)), form);
        assert!(again.contains("unreadable") && !again.contains("half"), "{again}");
    }
}

#[test]
fn an_answer_of_which_nobody_has_anything_leaves_no_trace() {
    let buffer = ReplayBuffer::new(StreamId(1), Arc::default());
    let client = buffer.attach(None);
    let (number, _) = buffer.begin(Kind::Response, None, &Bytes::from_static(b"{\"id\":1,"));
    buffer.break_off_message(number);
    let bytes = buffer.lock().bytes;
    assert_eq!((buffer.lock().messages.len(), bytes), (0, 0));
    assert_eq!(rest_of(&client, EventForm::WithoutIds), "");
}

#[test]
fn half_an_answer_in_json_is_an_error_of_the_body() {
    let buffer = ReplayBuffer::new(StreamId(1), Arc::default());
    let client = buffer.attach(None);
    let (number, _) = buffer.begin(Kind::Response, None, &Bytes::from_static(b"{\"id\":1,"));
    assert_eq!(client.pieces(&mut Batch::default()), ReadStatus::On);
    buffer.break_off_message(number);
    assert_eq!(client.pieces(&mut Batch::default()), ReadStatus::Elsewhere);
}
