//! The correlator: facts learned about how an upstream names requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::progress::clients::Client;
use crate::progress::correlate::call::Call;
use crate::progress::correlate::given_names::NameKey;
use crate::progress::correlate::ledger::{Ledger, sole};
use crate::progress::correlate::strays::Strays;
use crate::progress::correlate::tombstones::Tombstone;
use crate::progress::dialect::report::About;
use crate::progress::event::queue::{EventQueue, VerdictRun};
use crate::progress::ids::{CallId, Principal, StreamId};
use crate::progress::log_request::LogRequest;
use crate::progress::payload::Payload;
use crate::progress::policy::policies::Policies;
use crate::progress::policy::{Policy, TokenIs};
use crate::progress::streams::ClientStreams;
use crate::progress::topology::Topology;
use crate::progress::verdict::{Reason, Repair};
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::mcp;
use crate::protocol::mcp::Revision;

/// The call that a report is about, and the repair of the token that was needed to find the call.
pub(crate) type Attributed = (CallId, Option<Repair>);

/// The kind of value that an upstream has put in the place of the token so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Only values that fit both or none.
    None,
    /// Values that only fitted request ids, and none that only fitted a token.
    OnlyIds,
    /// The server sends tokens: a value has only fitted a token, or the route says so.
    Tokens,
}

impl Evidence {
    pub(crate) fn from_setting(setting: Option<TokenIs>) -> Self {
        match setting {
            None => Self::None,
            Some(TokenIs::RequestId) => Self::OnlyIds,
            Some(TokenIs::Token) => Self::Tokens,
        }
    }
}

/// A token in progress on the stream of a single call, and what it meant.
#[derive(Debug)]
pub(crate) struct KnownToken {
    /// As the server wrote it.
    text: Vec<u8>,
    pub(crate) key: Key,
    pub(crate) means: Attributed,
    /// A call has exactly this token.
    pub(crate) is_given: bool,
    /// The state in which it meant that.
    changes: u64,
    evidence: Evidence,
}

/// The longest token, in bytes, whose meaning is kept for the next message.
const KNOWN_TOKEN_MAX: usize = 256;

/// The tokens whose meaning is kept: the call's own, and one that the server has invented.
const KNOWN_TOKENS_MAX: usize = 2;

/// The last ends of calls, by principal.
#[derive(Debug, Default)]
pub(crate) struct LastEnds {
    /// The call that ended last.
    last: Option<(Principal, Instant)>,
    /// The last end of a call of any other principal.
    others: Option<Instant>,
}

impl LastEnds {
    /// Notes the end of a call of `principal`.
    pub(crate) fn note(&mut self, principal: Principal, now: Instant) {
        // Two values answer the question for every principal: the last end, and the last end of
        // anybody else.
        if let Some((before, at)) = self.last.replace((principal, now))
            && before != principal
        {
            self.others = Some(at);
        }
    }

    /// The last end of a call of any principal except `principal`.
    pub(crate) fn of_others(&self, principal: Principal) -> Option<Instant> {
        let last = self.last.filter(|(who, _)| *who != principal);
        last.map(|(_, at)| at).or(self.others)
    }
}

/// The part of a filter that knows which requests are open and which of them a message is about.
#[derive(Debug)]
pub struct Correlator {
    pub(crate) policy: Policies,
    pub(crate) topology: Topology,
    pub(crate) revision: Option<Revision>,
    /// The client, if `initialize` named it.
    pub(crate) client: Option<Arc<Client>>,
    /// The time when the last byte of the upstream arrived.
    pub(crate) received_at: Option<Instant>,
    pub(crate) to_server: VecDeque<Payload>,
    pub(crate) events: EventQueue,
    pub(crate) streams: ClientStreams,
    /// The stream for messages that belong to no request.
    pub(crate) session_stream: Option<StreamId>,
    /// The last number that was given to a message to be written, or to a name for a server. It
    /// only rises.
    pub(crate) order: u64,
    pub(crate) log_request: LogRequest,
    pub(crate) ledger: Ledger,
    pub(crate) evidence: Evidence,
    /// The time when a client last gave up a request.
    pub(crate) given_up_at: Option<Instant>,
    pub(crate) last_ends: LastEnds,
    /// Tokens in the current message that are active in other sessions only.
    pub(crate) elsewhere: Vec<Key>,
    /// The server may have been given tokens that are strings.
    pub(crate) gives_strings: bool,
    /// The secret of the names that the server is given. Recordings of earlier versions have none:
    /// their names follow each other.
    pub(crate) name_key: Option<NameKey>,
    /// Names that belong to no call.
    pub(crate) strays: Strays,
    /// The tokens that the last progress on the stream of a single call named. A server may name two in turn.
    last_tokens: SmallVec<[Box<KnownToken>; 1]>,
    /// The one of them that gives way to the next.
    oldest_token: usize,
}

impl Correlator {
    /// A correlator without calls.
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self {
            topology: Topology::new(policy.id_mapping),
            revision: None,
            client: None,
            received_at: None,
            to_server: VecDeque::new(),
            events: EventQueue::default(),
            streams: ClientStreams::default(),
            session_stream: None,
            order: 0,
            log_request: LogRequest::default(),
            ledger: Ledger::new(policy.id_mapping, policy.renames_tokens()),
            evidence: Evidence::from_setting(policy.call.token_is),
            given_up_at: None,
            last_ends: LastEnds::default(),
            elsewhere: Vec::new(),
            gives_strings: policy.gives_strings(),
            name_key: None,
            strays: Strays::default(),
            last_tokens: SmallVec::new(),
            oldest_token: 0,
            policy: Policies::new(policy),
        }
    }

    /// An open call.
    pub(crate) fn get(&self, id: CallId) -> Option<&Call> {
        self.ledger.get(id)
    }

    /// An open call, to change its state.
    pub(crate) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.ledger.get_mut(id)
    }

    /// The only open call, if there is just one.
    pub(crate) fn sole_mut(&mut self) -> Option<(CallId, &mut Call)> {
        self.ledger.sole_mut()
    }

    /// The open calls, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (CallId, &Call)> {
        self.ledger.iter()
    }

    /// The open call with exactly this id at the server.
    pub(crate) fn by_id(&self, id: &Key) -> Option<CallId> {
        self.ledger.by_id(id)
    }

    /// The open call that an answer with this id ends.
    pub(crate) fn call_of_answer(&self, id: &Key) -> Option<CallId> {
        self.ledger.call_of_answer(id)
    }

    /// The call that ends by itself next.
    pub(crate) fn next_expiry(&self) -> Option<(Instant, CallId)> {
        self.ledger.next_expiry()
    }

    /// Notes the upstream stream on which the server sends messages about a call.
    pub(crate) fn pair(&mut self, id: CallId, upstream: StreamId) {
        self.ledger.pair(id, upstream);
    }

    /// Moves a call to another stream of its client.
    pub(crate) fn move_to(&mut self, id: CallId, stream: StreamId) {
        self.ledger.move_to(id, stream);
    }

    /// Changes the time when a call ends by itself. The time to live of a task stays.
    pub(crate) fn put_off(&mut self, id: CallId, change: impl FnOnce(Instant) -> Instant) {
        self.ledger.put_off(id, change);
    }

    /// The token that progress has named before, if `text` is the same and means the same as then.
    pub(crate) fn known_token(&self, text: &[u8]) -> Option<&KnownToken> {
        // A kept meaning is valid only as long as no call and no name has changed since, and the
        // server is still believed to use the same kind of value.
        let state = (self.ledger.changes(), self.evidence);
        let mut tokens = self.last_tokens.iter().map(|known| &**known);
        tokens.find(|known| (known.changes, known.evidence) == state && known.text == text)
    }

    /// Keeps the meaning of a token for the next message.
    pub(crate) fn note_token(&mut self, text: &[u8], key: Key, means: Attributed) {
        if text.len() > KNOWN_TOKEN_MAX {
            return;
        }
        let is_given = self.ledger.by_token(&key).is_some();
        let (changes, evidence) = (self.ledger.changes(), self.evidence);
        if self.last_tokens.len() < KNOWN_TOKENS_MAX {
            let text = text.to_vec();
            let known = KnownToken { text, key, means, is_given, changes, evidence };
            self.last_tokens.push(Box::new(known));
            return;
        }
        // Reuse the buffer of the oldest entry: a server that invents a token for each report must
        // not cost an allocation each time.
        let known = &mut self.last_tokens[self.oldest_token];
        self.oldest_token = (self.oldest_token + 1) % KNOWN_TOKENS_MAX;
        known.text.clear();
        known.text.extend_from_slice(text);
        (known.key, known.means, known.is_given) = (key, means, is_given);
        (known.changes, known.evidence) = (changes, evidence);
    }

    pub(crate) fn active(&self, which: impl Fn(&Call) -> bool) -> impl Iterator<Item = CallId> {
        self.ledger.iter().filter(move |(_, call)| which(call)).map(|(id, _)| id)
    }

    pub(crate) fn is_subscription(&self, call: CallId) -> bool {
        self.ledger.get(call).is_some_and(|call| &*call.method == mcp::LISTEN)
    }

    pub(crate) fn is_paired(&self, upstream: StreamId) -> bool {
        !self.ledger.paired_with(upstream).is_empty()
    }

    pub(crate) fn calls_on(&self, stream: StreamId) -> Vec<CallId> {
        self.ledger.on_stream(stream).to_vec()
    }

    /// The kind of value that the server puts in the place of the token of a call: the settings of the call go
    /// before what has been learned.
    pub(crate) fn evidence_of(&self, call: CallId) -> Evidence {
        let settings = self.ledger.get(call).map(Call::settings);
        match settings.and_then(|settings| settings.token_is) {
            Some(token_is) => Evidence::from_setting(Some(token_is)),
            None => self.evidence,
        }
    }

    /// Remembers that the server means `call` by its token, unless the token is the id of another request:
    /// elsewhere the token means that request.
    pub(crate) fn learned(&mut self, about: &About, call: CallId) -> Attributed {
        if let Some(token) = &about.token
            && self.ledger.by_id(token).is_none_or(|other| other == call)
        {
            self.ledger.learn(token, call);
        }
        (call, Some(Repair::Token))
    }

    /// The call with this token, if there is one.
    pub(crate) fn by_token(&mut self, token: &Key) -> Option<Attributed> {
        let as_id = self.ledger.by_id(token);
        // This server is known to send ids. That the same value is also the token of another call
        // is a coincidence.
        if let Some(call) = as_id
            && self.evidence_of(call) == Evidence::OnlyIds
        {
            return Some((call, Some(Repair::Token)));
        }
        if let Some(call) = self.ledger.by_token(token) {
            // The value is a token and no id: from now on the server is known to send tokens.
            if as_id.is_none() {
                self.evidence = Evidence::Tokens;
            }
            return Some((call, None));
        }
        // Last, because an exact name goes before another spelling of the name.
        self.ledger.by_token_in_other_spelling(token).map(|call| (call, Some(Repair::Token)))
    }

    /// The call whose id stands in the place of the token.
    pub(crate) fn by_token_as_id(&mut self, token: &Key) -> Option<CallId> {
        let as_id = self.ledger.by_id(token);
        let are_ids = self.evidence == Evidence::OnlyIds;
        let call = as_id.or_else(|| self.ledger.by_id_for_token(token, are_ids))?;
        // One value is enough to prefer ids, but it does not overrule a token that was seen before.
        if self.evidence == Evidence::None {
            self.evidence = Evidence::OnlyIds;
        }
        Some(call)
    }

    /// Learns from a late report: while no request is open, a token that is exactly the id of an ended request
    /// shows that the server puts ids in the place of tokens.
    pub(crate) fn note_late_id(&mut self, token: &Key) {
        // Without this, a server whose first reports all come after a cancellation stays unknown,
        // and its next late report would be guessed to be about the only open call.
        let is_late_id = || self.ledger.is_empty() && self.ledger.was_id(token).is_some();
        if self.evidence == Evidence::None && is_late_id() {
            self.evidence = Evidence::OnlyIds;
        }
    }

    /// Whether a name means no open call: a call that is over had the name, in any spelling, or the name came first
    /// while no call was open, or an answer of the last minute contains it.
    pub(crate) fn is_of_no_call(&self, name: &Key, now: Option<Instant>) -> bool {
        self.ledger.was_named(name) || self.strays.contains(name, now)
    }

    /// Remembers a name that no call can have given, because no call is open.
    pub(crate) fn note_stray(&mut self, about: &About) {
        if self.active(|call| &*call.method != mcp::LISTEN).next().is_none() {
            about.token.iter().chain(&about.request).for_each(|name| self.strays.add(name));
        }
    }

    /// Whether a token is the id of a request that is over, from a server that puts ids in the place of tokens.
    pub(crate) fn was_id_for_token(&self, token: &Key) -> bool {
        self.evidence == Evidence::OnlyIds
            && self.ledger.by_id(token).is_none()
            && self.ledger.was_id(token).is_some()
    }

    pub(crate) fn by_other_names(&self, about: &About) -> Result<CallId, Reason> {
        if let Some(id) = &about.task {
            let of_task = |call: &Call| call.task.as_ref().is_some_and(|task| task.id == *id);
            return sole(self.active(of_task)).ok_or(Reason::Unknown);
        }
        if let Some(tool) = &about.tool {
            return only(self.active(|call| call.tool.as_deref() == Some(tool)));
        }
        // A subscription stays open for as long as the client listens: as a candidate, the
        // subscription would make every guess ambiguous.
        match only(self.active(Call::is_tool_call)) {
            Err(Reason::Unknown) => only(self.active(|call| &*call.method != mcp::LISTEN)),
            found => found,
        }
    }

    /// Whether a token belongs to a call of this filter only, or to no call at all.
    pub(crate) fn knows_token(&self, token: &Key) -> bool {
        self.ledger.by_token(token).is_some()
            || self.ledger.by_id(token).is_some()
            || self.ledger.by_alias(token).is_some()
            || self.ledger.was_token(token).is_some()
            || self.elsewhere.contains(token)
    }

    /// Whether a request has, or had, this name.
    pub(crate) fn is_taken(&self, name: &Key) -> bool {
        self.knows_token(name) || self.ledger.was_id(name).is_some()
    }

    /// The open request with just this id on a client stream.
    pub(crate) fn asked_on(&self, stream: StreamId, id: &Key) -> Option<CallId> {
        let is_here = |id: &CallId| self.ledger.get(*id).is_some_and(|call| call.stream == stream);
        self.ledger.all_by_id(id).iter().copied().find(is_here)
    }

    /// The reason for withholding an answer with this id, which belongs to no open request.
    pub(crate) fn why_orphan(&self, key: &Key) -> Reason {
        match self.ledger.was_id_in_any_spelling(key) {
            Some(Tombstone::Answered | Tombstone::Ended) => Reason::SecondAnswer,
            Some(Tombstone::Cancelled) => Reason::CancelledAnswer,
            Some(Tombstone::Token | Tombstone::Alias) | None => Reason::OrphanAnswer,
        }
    }

    /// The open request that a client calls `id`.
    pub(crate) fn client_call(&self, stream: StreamId, id: &Key) -> Option<CallId> {
        self.ledger.by_client_id(stream, id).first().copied()
    }

    /// Notes that a call has joined the work of an earlier call, which began at `began`.
    pub(crate) fn join(&mut self, id: CallId, began: Instant, attempts: u32) {
        if let Some(call) = self.ledger.get_mut(id) {
            (call.is_joined, call.opened, call.attempts) = (true, began, attempts);
        }
    }

    pub(crate) fn pair_request(&mut self, client: StreamId, request: &Message, upstream: StreamId) {
        let Some(id) = request.id_key() else { return };
        // The newest: a careless client repeats ids.
        let known = self.ledger.by_client_id(client, &id);
        let own = |id: &&CallId| self.ledger.get(**id).is_some_and(|call| call.stream == client);
        if let Some(call) = known.iter().rev().find(own) {
            self.ledger.pair(*call, upstream);
        }
    }

    /// The number of open tasks, in a filter whose calls do not end by themselves.
    pub fn tasks(&self) -> usize {
        self.ledger.expiring()
    }

    /// Whether an event waits.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next events at once, if they are the same verdict on messages that followed each other.
    pub fn poll_verdicts(&mut self) -> Option<VerdictRun> {
        self.events.take_run()
    }

    /// The policy of calls that open from now on.
    pub fn policy(&self) -> &Arc<Policy> {
        self.policy.now()
    }

    /// The policy of a call; the policy of new calls if the call is unknown.
    pub(crate) fn policy_of(&self, call: CallId) -> &Policy {
        self.ledger.get(call).map_or(&self.policy, |call| &call.policy)
    }
}

/// The only call, or the reason why no single call is meant.
pub(crate) fn only(mut calls: impl Iterator<Item = CallId>) -> Result<CallId, Reason> {
    let first = calls.next().ok_or(Reason::Unknown)?;
    if calls.next().is_none() { Ok(first) } else { Err(Reason::Ambiguous) }
}
