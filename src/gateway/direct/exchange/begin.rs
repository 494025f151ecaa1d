//! Begins an exchange: makes its filter, and opens the calls of its requests.

use std::sync::Arc;

use super::without_stream::Detour;
use super::{Exchange, OWN};
use crate::gateway::direct::session::{Session, SessionStream};
use crate::gateway::observers::Observers;
use crate::observe::events::Scope;
use crate::progress::input::{FilterScope, Input};
use crate::progress::{Filter, Policy, RequestMembers, RequestOrigin};
use crate::protocol::jsonrpc::{Kind, Message};
use crate::protocol::mcp::Revision;
use crate::relay::active_tokens::TokenScope;
use crate::relay::filter_guard::FilterGuard;
use crate::transport::clock::now;
use crate::transport::mcp_http::event_ids::EventIds;
use crate::transport::mcp_http::request_body::cancels_apart;

impl Exchange {
    /// Returns the exchange of the requests in `message`; `None` if they could not be read.
    pub(crate) fn new(
        policy: &Arc<Policy>,
        session: Option<&Arc<Session>>,
        message: Option<(&Message, &RequestMembers)>,
        revision: Option<Revision>,
        origin: RequestOrigin,
        audience: &Observers,
        scope: TokenScope,
    ) -> Box<Self> {
        let filter = match session {
            Some(_) => Filter::of_request(Arc::clone(policy)),
            None => Filter::of_lone_request(Arc::clone(policy)),
        };
        // Boxed from the beginning, because each move of a filter would copy its many bytes.
        let mut exchange = Box::new(Self {
            filter: FilterGuard::new(filter, Arc::clone(policy), OWN),
            member: None,
            scope,
            lease: None,
            log: audience.log(),
            observing: policy.observes(),
            modern: revision >= Some(Revision::V2026_07_28),
            event_ids: EventIds::default(),
            resumable: false,
            resumes_never: false,
            ends_with_answer: false,
            answered: false,
            control: None,
            open: None,
            cancels: Vec::new(),
            last_read: now(),
            detour: Detour::default(),
            elsewhere: None,
            is_heard: false,
        });
        exchange.enter_requests(policy, session, message, revision, origin, audience);
        exchange
    }

    /// Opens the calls of the requests.
    fn enter_requests(
        &mut self,
        policy: &Arc<Policy>,
        session: Option<&Arc<Session>>,
        message: Option<(&Message, &RequestMembers)>,
        revision: Option<Revision>,
        origin: RequestOrigin,
        audience: &Observers,
    ) {
        let (filter, at) = (&mut self.filter, self.last_read);
        let begins = match session {
            Some(_) => FilterScope::Request(revision),
            None => FilterScope::Exchange(revision),
        };
        let beside = session.and_then(|session| session.filter_id);
        filter.set_emitter(audience.emitter(beside, Scope::Exchange, policy));
        filter.apply(at, Input::Begin(begins));
        filter.try_with(|filter| filter.calls_mut().streams_mut().set_origin(OWN, origin));
        self.member = session.map(|session| session.enter(message, policy));
        if let Some(SessionStream { client: Some(client), .. }) = &self.member {
            filter.apply(at, Input::SetClient(Some(Arc::clone(client))));
        }
        match message {
            // A single message, which nearly all clients send, is not copied.
            Some((one, members)) if one.kind() != Kind::Batch => {
                filter.client_message_of(at, OWN, one, Some(members));
            }
            Some((whole, _)) => {
                let (opens, cancels) = cancels_apart(whole);
                for one in &opens {
                    filter.client_message_of(at, OWN, one, RequestMembers::known(message, one));
                }
                self.cancels = cancels;
            }
            None => {
                filter.apply(at, Input::MarkIncomplete);
            }
        }
        let tokens = filter.try_with(|filter| filter.calls().open().tokens());
        self.lease = self.scope.enter(tokens.unwrap_or_default());
    }
}
