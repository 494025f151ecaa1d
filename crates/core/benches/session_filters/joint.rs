//! A session with one filter: each request is a stream of the filter, under the session's lock.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use milepost_core::progress::input::Input;
use milepost_core::progress::{
    Filter, Policy, RequestMembers, RequestOrigin, StreamId, StreamKind, StreamPacing,
};
use milepost_core::protocol::jsonrpc::Message;

use crate::shell::{Event, Guard, Lock, Session};

/// A session with one filter.
pub(crate) struct Joint {
    shared: Lock<Shared>,
    policy: Arc<Policy>,
}

struct Shared {
    filter: Guard,
    streams: u64,
    /// Counts the tasks that would be woken, in place of their wakers.
    woken: u64,
}

/// The stream of a request.
pub(crate) struct OwnStream(StreamId);

/// Whether a request of the stream is open.
fn has_calls_on(on: StreamId) -> impl FnOnce(&mut Filter) -> bool {
    move |filter| filter.intake().has_calls_on(on)
}

impl Shared {
    /// Wakes the tasks of other streams that have something to do now, before the lock is released.
    fn wake_others(&mut self, own: StreamId) {
        let Self { filter, woken, .. } = self;
        filter.run(|filter| {
            filter.calls_mut().streams_mut().settle(own);
            while let Some(changed) = filter.calls_mut().streams_mut().next_changed() {
                *woken += u64::from(changed != own);
            }
        });
    }

    fn collect(&mut self, at: Instant, on: StreamId) -> usize {
        self.filter.collect(at, on, has_calls_on(on))
    }
}

impl Session for Joint {
    type Request = OwnStream;
    const NAME: &'static str = "one";

    fn new(policy: &Arc<Policy>) -> Self {
        let mut filter = Guard::new(Filter::new(Arc::clone(policy)), policy);
        filter.run(|filter| filter.calls_mut().streams_mut().note_changes());
        let shared = Shared { filter, streams: 0, woken: 0 };
        Self { shared: Lock::new(shared), policy: Arc::clone(policy) }
    }

    fn open(&self, at: Instant, message: &Message, members: &RequestMembers) -> Box<OwnStream> {
        // The gateway asks for the revision before it knows that there will be an exchange.
        self.shared.with(|shared| {
            shared.filter.run(|filter| filter.calls().handshake().revision());
        });
        self.shared.with(|shared| {
            shared.filter.set_policy(&self.policy);
            shared.streams += 1;
            let on = StreamId(shared.streams);
            let opens = Input::OpenStream(on, StreamKind::Exchange, StreamPacing::Immediate);
            shared.filter.apply(at, opens);
            shared.filter.run(|filter| {
                filter.calls_mut().streams_mut().set_origin(on, RequestOrigin::default())
            });
            shared.filter.take(at, on, message, Some(members));
            shared.filter.note(has_calls_on(on));
            shared.wake_others(on);
            Box::new(OwnStream(on))
        })
    }

    fn notify(&self, at: Instant, message: &Message) {
        self.shared.with(|shared| {
            shared.filter.set_policy(&self.policy);
            shared.filter.take(at, StreamId::NOWHERE, message, None);
            shared.filter.take_events();
            while shared.filter.run(Filter::poll_to_server).flatten().is_some() {}
            shared.wake_others(StreamId::NOWHERE);
        });
    }

    fn read(&self, request: &mut OwnStream, at: Instant, events: &[Event]) -> usize {
        let on = request.0;
        self.shared.with(|shared| {
            let mut told = 0;
            for event in events {
                if let Some(fast) = shared.filter.fast(at, on, event) {
                    told += fast;
                    continue;
                }
                let message = shared.filter.ordinary(on, event);
                shared.filter.server_message(at, on, &message);
                black_box(shared.filter.filter().intake().last_number());
                told += shared.collect(at, on);
            }
            told += shared.collect(at, on);
            black_box(shared.filter.filter().calls().poll_stream_timeout(on));
            shared.wake_others(on);
            told
        })
    }

    fn body(&self, request: &mut OwnStream, at: Instant, body: &Bytes) -> usize {
        let on = request.0;
        let message = Message::parse(body.clone());
        self.shared.with(|shared| {
            shared.filter.name_tokens(on, &message);
            shared.filter.server_message(at, on, &message);
            shared.filter.end_response(at, on);
            let told = shared.filter.drain(at, on);
            shared.filter.note(has_calls_on(on));
            shared.wake_others(on);
            told
        })
    }

    fn end(&self, request: &mut OwnStream, at: Instant) -> usize {
        let on = request.0;
        self.shared.with(|shared| {
            shared.filter.end_response(at, on);
            let mut told = shared.collect(at, on);
            assert_eq!(shared.filter.run(has_calls_on(on)), Some(false));
            told += shared.collect(at, on);
            shared.wake_others(on);
            told
        })
    }

    fn close(&self, request: Box<OwnStream>, at: Instant) {
        let on = request.0;
        self.shared.with(|shared| {
            assert_eq!(shared.filter.run(has_calls_on(on)), Some(false));
            shared.filter.apply(at, Input::CloseStream(on, false));
            while shared.filter.run(Filter::poll_to_server).flatten().is_some() {}
            shared.filter.take_events();
            shared.wake_others(on);
        });
    }

    fn waits(&self) -> (u64, u64) {
        self.shared.waits()
    }
}
