//! Open HTTP+SSE streams of a route, each with the requests of the POSTs to its endpoint.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use http::uri::PathAndQuery;

use crate::gateway::direct::control::ControlSender;
use crate::gateway::direct::mailbox::Mailbox;
use crate::gateway::route_state::RouteWatch;
use crate::observe::log::Connection;
use crate::progress::input::Input;
use crate::progress::{Policy, RequestOrigin};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::relay::SOLE_STREAM;
use crate::relay::active_tokens::SessionTokens;
use crate::relay::filter_guard::FilterGuard;
use crate::transport::clock::now;
use crate::transport::http::in_flight::{InFlight, InFlightGuard};
use crate::transport::random::random_id;

/// The query parameter added to an endpoint that several clients would otherwise share.
const OWN_KEY: &str = "milepost_stream";

/// One HTTP+SSE stream, and the requests of the POSTs to its endpoint.
pub(crate) struct DirectSseStream {
    pub(crate) state: Mutex<SseStreamState>,
    pub(crate) reader: Mailbox,
}

pub(crate) struct SseStreamState {
    pub(crate) filter: FilterGuard,
    pub(crate) watch: RouteWatch,
    pub(crate) log: Connection,
    pub(crate) calls: Arc<InFlight>,
    pub(crate) tokens: SessionTokens,
    /// Set while requests are open, so that the shutdown waits for them.
    pub(crate) open: Option<InFlightGuard>,
    /// Sends cancellations to the server, in the way of the last request.
    pub(crate) control: Option<ControlSender>,
}

impl SseStreamState {
    /// Whether server messages are forwarded unchanged.
    pub(crate) fn observes(&mut self) -> bool {
        self.filter.try_with(|filter| filter.calls().policy().observes()) == Some(true)
    }

    /// Applies the current settings of the route to later requests.
    fn settle(&mut self) {
        self.watch.has_changed();
        self.filter.set_policy(&self.watch.state().policy);
    }

    /// Updates the active tokens after requests were opened or have ended.
    pub(crate) fn renew_tokens(&mut self) {
        let Self { filter, tokens, .. } = self;
        tokens.renew(filter);
    }

    pub(crate) fn count(&mut self) {
        match self.filter.open_calls() {
            0 => self.open = None,
            _ if self.open.is_none() => self.open = Some(self.calls.open()),
            _ => {}
        }
    }
}

impl DirectSseStream {
    pub(crate) fn lock(&self) -> MutexGuard<'_, SseStreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The endpoint for POSTs of a stream.
#[derive(Clone)]
pub(crate) struct SsePostTarget {
    pub(crate) stream: Arc<DirectSseStream>,
    pub(crate) on_server: PathAndQuery,
}

/// The open streams of a route, by the query of the endpoint that each client was given.
#[derive(Default)]
pub(crate) struct DirectSseStreams {
    known: Mutex<HashMap<String, SsePostTarget>>,
}

impl DirectSseStreams {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<String, SsePostTarget>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of open streams.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is a stream whose endpoint has this query.
    pub(crate) fn knows(&self, query: &str) -> bool {
        self.lock().contains_key(query)
    }

    /// Adds a stream under the query of its endpoint, or under a query that Milepost makes.
    pub(crate) fn enter(&self, endpoint: SsePostTarget) -> Option<String> {
        // The lock is kept from the check to the entry, so that two streams cannot get the same key.
        let mut known = self.lock();
        let query = endpoint.on_server.query().unwrap_or_default();
        let key = if query.is_empty() || known.contains_key(query) {
            let name = random_id()?;
            let own = format!("{OWN_KEY}={name}");
            if query.is_empty() { own } else { format!("{query}&{own}") }
        } else {
            query.to_owned()
        };
        known.insert(key.clone(), endpoint);
        Some(key)
    }
}

impl DirectSseStream {
    /// Returns the policy for the next request.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let mut state = self.lock();
        state.settle();
        Arc::clone(state.filter.policy())
    }

    pub(crate) fn receive_one_way(&self, message: Option<&Message>, origin: &RequestOrigin) {
        let mut state = self.lock();
        state.settle();
        state.filter.try_with(|filter| {
            filter.calls_mut().streams_mut().set_origin(SOLE_STREAM, origin.clone())
        });
        match message {
            Some(message) if message.kind() != Kind::Noise => {
                state.filter.client_message(now(), SOLE_STREAM, message);
            }
            Some(_) => {}
            None => {
                state.filter.apply(now(), Input::MarkIncomplete);
            }
        }
        state.count();
        state.renew_tokens();
        drop(state);
        self.reader.wake();
    }
}
