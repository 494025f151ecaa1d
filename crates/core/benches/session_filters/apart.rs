//! The filters as the gateway uses them today: each request has its own filter, and the session's filter knows the
//! request as a shadow. The calls and their order are those of `Exchange` and `Session` in `src/gateway/direct`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use milepost_core::progress::input::{FilterScope, Input};
use milepost_core::progress::{
    Filter, Origin, Policy, RequestMembers, RequestOrigin, StreamId, StreamKind, StreamPacing,
};
use milepost_core::protocol::jsonrpc::{Kind, Message};

use crate::shell::{Event, Guard, Lock, Session};

/// The only stream of a request's filter.
const OWN: StreamId = StreamId(0);

/// A session whose requests have their own filters.
pub(crate) struct Apart {
    shared: Lock<Shared>,
    policy: Arc<Policy>,
}

struct Shared {
    filter: Guard,
    streams: u64,
}

pub(crate) struct OwnFilter {
    filter: Guard,
    /// The stream of the request's shadow in the session's filter.
    stream: StreamId,
}

impl Shared {
    fn note_delivery(&mut self, at: Instant, on: StreamId, message: &Message) {
        self.filter.run(|filter| filter.intake_mut().note_delivery(at, Some(on), message));
        self.note();
    }

    fn note_last_delivery(&mut self, at: Instant, on: StreamId, message: &Message) {
        self.filter.run(|filter| filter.intake_mut().note_delivery(at, Some(on), message));
        if self.filter.run(|filter| filter.intake().has_calls_on(on)) == Some(true) {
            self.filter.apply(at, Input::SettleStream(on));
        }
        self.note();
    }

    fn note(&mut self) {
        self.filter.run(|filter| filter.calls().open().tasks());
        self.filter.take_events();
    }
}

impl Apart {
    /// Adds the shadow of a request to the session's filter, and returns the request's own filter.
    fn enter(&self, at: Instant, message: &Message, members: &RequestMembers) -> OwnFilter {
        let revision =
            |shared: &mut Shared| shared.filter.run(|filter| filter.calls().handshake().revision());
        let revision = self.shared.with(revision).flatten();
        let filter = Filter::of_request(Arc::clone(&self.policy));
        let mut filter = Guard::new(filter, &self.policy);
        filter.apply(at, Input::Begin(FilterScope::Request(revision)));
        filter.run(|filter| {
            filter.calls_mut().streams_mut().set_origin(OWN, RequestOrigin::default())
        });
        let (stream, client) = self.shared.with(|shared| {
            shared.filter.set_policy(&self.policy);
            shared.streams += 1;
            let stream = StreamId(shared.streams);
            let client =
                shared.filter.run(|filter| filter.calls().handshake().client().cloned()).flatten();
            let opens = Input::OpenStream(stream, StreamKind::Exchange, StreamPacing::Immediate);
            shared.filter.apply(at, opens);
            shared.filter.take(at, stream, message, Some(members));
            (stream, client)
        });
        if client.is_some() {
            filter.apply(at, Input::SetClient(client));
        }
        OwnFilter { filter, stream }
    }

    /// Handles a message that the fast path does not take.
    fn handle(&self, request: &mut OwnFilter, at: Instant, message: &Message) {
        let origin = Origin::Stream(OWN);
        if request.filter.server_message(at, OWN, message) {
            self.ask(request.stream, message);
            request.filter.run(|filter| {
                filter.intake_mut().server_message_here(at, origin, message);
            });
        }
        if message.kind() == Kind::Response {
            let all = request.filter.open_calls() == 0;
            self.shared.with(|shared| match all {
                true => shared.note_last_delivery(at, request.stream, message),
                false => shared.note_delivery(at, request.stream, message),
            });
        }
    }

    /// Asks the session's filter which request a message belongs to, because the filter of this request does not know
    /// it.
    fn ask(&self, on: StreamId, message: &Message) {
        let origin = Origin::Stream(on);
        self.shared.with(|shared| {
            shared.filter.run(|filter| filter.calls().repaired_answer(message));
        });
        self.shared.with(|shared| {
            let find = |filter: &mut Filter| filter.calls_mut().find_named_stream(origin, message);
            let found = shared.filter.run(find).flatten();
            assert!(found.is_none_or(|found| found == on));
            shared.filter.run(|filter| filter.calls().is_late(message));
            shared.filter.run(|filter| filter.calls_mut().learn_from(origin, message));
        });
    }
}

fn has_calls(filter: &mut Filter) -> bool {
    !filter.calls().open().is_empty()
}

impl Session for Apart {
    type Request = OwnFilter;
    const NAME: &'static str = "apart";

    fn new(policy: &Arc<Policy>) -> Self {
        let mut filter = Guard::new(Filter::of_session(Arc::clone(policy)), policy);
        filter.apply(Instant::now(), Input::Begin(FilterScope::Session));
        let shared = Shared { filter, streams: 0 };
        Self { shared: Lock::new(shared), policy: Arc::clone(policy) }
    }

    fn open(&self, at: Instant, message: &Message, members: &RequestMembers) -> Box<OwnFilter> {
        let mut request = self.enter(at, message, members);
        request.filter.take(at, OWN, message, Some(members));
        request.filter.note(has_calls);
        Box::new(request)
    }

    fn notify(&self, at: Instant, message: &Message) {
        self.shared.with(|shared| {
            shared.filter.set_policy(&self.policy);
            shared.filter.take(at, StreamId::NOWHERE, message, None);
            shared.note();
            while shared.filter.run(Filter::poll_to_server).flatten().is_some() {}
        });
    }

    fn read(&self, request: &mut OwnFilter, at: Instant, events: &[Event]) -> usize {
        let mut told = 0;
        for event in events {
            if let Some(fast) = request.filter.fast(at, OWN, event) {
                told += fast;
                continue;
            }
            let message = request.filter.ordinary(OWN, event);
            self.handle(request, at, &message);
            black_box(request.filter.filter().intake().last_number());
            told += request.filter.collect(at, OWN, has_calls);
        }
        told += request.filter.collect(at, OWN, has_calls);
        black_box(request.filter.filter().poll_timeout());
        told
    }

    fn body(&self, request: &mut OwnFilter, at: Instant, body: &Bytes) -> usize {
        let message = Message::parse(body.clone());
        request.filter.name_tokens(OWN, &message);
        self.handle(request, at, &message);
        request.filter.end_response(at, OWN);
        let told = request.filter.drain(at, OWN);
        request.filter.note(has_calls);
        told
    }

    fn end(&self, request: &mut OwnFilter, at: Instant) -> usize {
        request.filter.end_response(at, OWN);
        let told = request.filter.collect(at, OWN, has_calls);
        assert_eq!(request.filter.open_calls(), 0);
        told + request.filter.collect(at, OWN, has_calls)
    }

    fn close(&self, mut request: Box<OwnFilter>, at: Instant) {
        let open = request.filter.open_calls();
        assert_eq!(open, 0);
        let (own, stream) = (&mut request.filter, request.stream);
        self.shared.with(|shared| {
            let session = &mut shared.filter;
            own.run(|own| {
                session.run(|session| own.gate_mut().hand_over(session.gate_mut(), Some(stream)))
            });
            session.apply(at, Input::CloseStream(stream, false));
            while session.run(Filter::poll_to_server).flatten().is_some() {}
            shared.note();
        });
        request.filter.apply(at, Input::CloseStream(OWN, false));
        while request.filter.run(Filter::poll_to_server).flatten().is_some() {}
        request.filter.take_events();
    }

    fn waits(&self) -> (u64, u64) {
        self.shared.waits()
    }
}
