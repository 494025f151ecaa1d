//! The correlator: the open requests, and which of them a message is about.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::correlate::call::{Call, Resumption, SendHistory, ServerReports};
use crate::progress::correlate::draft::CallDraft;
use crate::progress::correlate::given_names::GivenNames;
use crate::progress::correlate::handshake::Handshake;
use crate::progress::correlate::last_ends::LastEnds;
use crate::progress::correlate::meter::Meter;
use crate::progress::correlate::name_evidence::NameEvidence;
use crate::progress::correlate::open_calls::OpenCalls;
use crate::progress::correlate::pending::PendingQueue;
use crate::progress::correlate::server_queue::ServerQueue;
use crate::progress::correlate::wording::Wording;
use crate::progress::event::FilterEvent;
use crate::progress::event::queue::EventQueue;
use crate::progress::event::summary::{CallStats, OpenCall};
use crate::progress::ids::{CallId, MappedId, StreamId};
use crate::progress::policy::policies::Policies;
use crate::progress::policy::{Mode, Policy};
use crate::progress::streams::ClientStreams;
use crate::progress::topology::Topology;
use crate::protocol::mcp;

/// Limit of the older policies that are kept for open calls, besides the policy for new calls. Beyond the limit, new
/// calls use the newest policy that is kept, until the calls of an older policy have ended.
const OLDER_MAX: usize = 64;

/// The part of a filter that knows which requests are open, and which of them a message is about. Each field holds one
/// kind of fact; the methods here combine these facts.
#[derive(Debug)]
pub struct Correlator {
    pub(crate) policy: Policies,
    pub(crate) handshake: Handshake,
    /// The time when the server's last bytes arrived.
    pub(crate) received_at: Option<Instant>,
    pub(crate) to_server: ServerQueue,
    pub(crate) events: EventQueue,
    pub(crate) streams: ClientStreams,
    pub(crate) open: OpenCalls,
    /// The time when a client last gave up a request.
    pub(crate) given_up_at: Option<Instant>,
    pub(crate) last_ends: LastEnds,
    pub(crate) names: NameEvidence,
    pub(crate) given: GivenNames,
}

impl Correlator {
    /// Returns a correlator without calls.
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self {
            handshake: Handshake::default(),
            received_at: None,
            to_server: ServerQueue::default(),
            events: EventQueue::default(),
            streams: ClientStreams::new(Topology::of(&policy)),
            open: OpenCalls::new(&policy),
            given_up_at: None,
            last_ends: LastEnds::default(),
            names: NameEvidence::new(policy.call.token_is),
            given: GivenNames { key: None, are_strings: policy.gives_strings() },
            policy: Policies::new(policy),
        }
    }

    /// Returns the open calls.
    pub fn open(&self) -> &OpenCalls {
        &self.open
    }

    /// Returns what is known about the client and the server.
    pub fn handshake(&self) -> &Handshake {
        &self.handshake
    }

    /// Returns the streams of the clients.
    pub fn streams(&self) -> &ClientStreams {
        &self.streams
    }

    /// Returns the client streams so that the caller can report changes: a stream is full, read or closed.
    pub fn streams_mut(&mut self) -> &mut ClientStreams {
        &mut self.streams
    }

    /// Returns the events that the caller has not taken yet.
    pub fn events(&self) -> &EventQueue {
        &self.events
    }

    /// Returns the events that the caller has not taken yet, so that it can take several together.
    pub fn events_mut(&mut self) -> &mut EventQueue {
        &mut self.events
    }

    /// Returns the open request with this id.
    pub fn opened(&self, id: CallId) -> Option<OpenCall<'_>> {
        let call = self.open.get(id)?;
        Some(OpenCall {
            call: id,
            method: &call.method,
            tool: call.tool.as_deref(),
            id: &call.id.client,
            token: call.token.as_ref().map(|token| &token.client),
            client: call.client.as_ref().or(self.handshake.client.as_ref()),
            opened: call.opened,
        })
    }

    /// Opens the call of a request that goes to the server. Returns `None` if too many calls are open.
    pub(crate) fn open_call(
        &mut self,
        now: Instant,
        stream: StreamId,
        (method, tool): (&str, Option<String>),
        draft: CallDraft,
    ) -> Option<CallId> {
        let settings = self.policy.of(tool.as_deref());
        let timeout = settings.call_timeout.filter(|_| settings.mode == Mode::Full);
        let expires = timeout.map(|timeout| now + timeout);
        // Copied, because a call may be open for hours, and a slice would keep a whole read buffer in memory.
        let own =
            |name: MappedId| MappedId { client: Bytes::copy_from_slice(&name.client), ..name };
        let token = draft.token.as_ref();
        let copy = self.policy.copy_of(method, tool.as_deref(), token);
        let copy = copy.filter(|copy| token.is_some_and(|token| token.server != *copy));
        let shadow = self.streams.topology.keeps_shadows();
        let id = self.open.add(Call {
            shadow,
            is_recorded: false,
            stream,
            resumption: Resumption::None,
            principal: self.streams.principal_of(stream),
            policy: Arc::clone(self.policy.now()),
            paired: None,
            id: own(draft.id),
            token: draft.token.map(own),
            method: mcp::owned_method(method),
            tool,
            revision: draft.revision,
            lacks_token: draft.lacks_token,
            client: draft.client,
            origin: draft.origin,
            opened: now,
            asks_for_task: draft.asks_for_task,
            task: None,
            about_task: draft.about_task,
            meter: Meter::default(),
            pending: PendingQueue::default(),
            sent: SendHistory::new(now),
            reports: ServerReports::default(),
            wake: None,
            // A shadow has no time limit here: the filter that serves the call ends it. `tasks/result` waits as long as
            // its task lives.
            expires: expires.filter(|_| !shadow && !draft.waits_for_task),
            clock: None,
            account: CallStats::default(),
            error_code: None,
            cancellation: None,
            signature: draft.signature,
            joined: None,
            attempts: 1,
        })?;
        if let Some(copy) = copy {
            // The server may name the call in its reports by the copy, which has another type than the token.
            self.open.ledger.learn(&copy, id);
        }
        if !shadow {
            self.events.push_back(FilterEvent::Opened(id));
        }
        Some(id)
    }

    /// Returns the policy of calls that open from now on.
    pub fn policy(&self) -> &Arc<Policy> {
        self.policy.now()
    }

    /// Returns the policy of a call, or the policy of new calls if the call is unknown.
    pub(crate) fn policy_of(&self, call: CallId) -> &Policy {
        self.open.get(call).map_or(&self.policy, |call| &call.policy)
    }

    /// Returns the kinds of text that a notification of Milepost for this call may contain.
    pub(crate) fn wording_of(&self, id: CallId) -> Wording {
        Wording::of(self.open.get(id), &self.handshake, self.policy_of(id))
    }

    /// Whether a message that is about no known call may belong to another client.
    pub(crate) fn is_private(&self) -> bool {
        self.streams.topology.has_strangers() || !self.names.elsewhere.is_empty()
    }

    /// Forgets the older policies that no open call uses.
    pub(crate) fn forget_policies(&mut self) {
        if !self.policy.older.is_empty() {
            self.policy.forget(needed_in(&self.open));
        }
    }

    /// Sets the policy of calls that open from now on. `is_reading`: a message of the server has arrived only in part.
    pub(crate) fn set_policy(&mut self, policy: &Arc<Policy>, is_reading: bool) {
        let policies = &mut self.policy;
        let is_wanted = Arc::ptr_eq(&policies.wanted, policy);
        if is_wanted && policies.now.observes() == policy.observes() {
            return;
        }
        policies.forget(needed_in(&self.open));
        let is_full = policies.older.len() >= OLDER_MAX;
        // Observe mode and repair mode keep their messages in different queues. If the mode changed while a request is
        // open or a message waits, the order of messages would change.
        let observes = policies.now.observes();
        let keeps_mode = observes != policy.observes() && (is_reading || !self.is_idle());
        if is_full || is_wanted && keeps_mode {
            return;
        }
        let policies = &mut self.policy;
        let now = if keeps_mode || policies.now.id_mapping != policy.id_mapping {
            // The mapping of ids cannot change during a connection, because the server knows all requests by one kind
            // of name.
            let mut wanted = Policy { id_mapping: policies.now.id_mapping, ..(**policy).clone() };
            if keeps_mode {
                wanted.keep_modes_of(&policies.now);
            }
            Arc::new(wanted)
        } else {
            Arc::clone(policy)
        };
        policies.wanted = Arc::clone(policy);
        policies.replace(now);
        policies.forget(needed_in(&self.open));
        if self.policy.renames_tokens() {
            self.open.rename();
        }
        self.given.are_strings |= self.policy.gives_strings();
    }

    /// Whether neither an open call nor a waiting message depends on the policy. The shared filter of a session is
    /// never idle, because its requests use the policies of their own filters.
    fn is_idle(&self) -> bool {
        self.streams.topology.is_whole() && self.open.is_empty() && self.streams.is_drained()
    }
}

/// Returns a test of whether an open call uses a policy.
fn needed_in(open: &OpenCalls) -> impl Fn(&Arc<Policy>) -> bool {
    |policy| open.iter().any(|(_, call)| Arc::ptr_eq(&call.policy, policy))
}
