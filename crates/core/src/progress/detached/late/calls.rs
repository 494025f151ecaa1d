//! Calls that their clients gave up, and whose work continues.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::progress::client_habits::ClientHabits;
use crate::progress::correlate::signature::Signature;
use crate::progress::detached::late::habits::HabitKey;
use crate::progress::detached::late::held::HeldCalls;
use crate::progress::detached::store::{KeptBytes, Work, WorkStore};
use crate::progress::event::late::{LateEvent, LateNews};
use crate::progress::ids::{CallId, Principal, StreamId};
use crate::progress::policy::Policy;
use crate::progress::policy::late::Late;
use crate::protocol::jsonrpc::{Key, Message};

/// Limit of the calls of one connection that are remembered because their answers were just given: a client may give a
/// call up while its answer is on the way. Beyond the limit the oldest is forgotten.
const GIVEN_MAX: usize = 16;

/// Limit of the tools of one server whose annotations are remembered.
const TOOLS_MAX: usize = 4096;

/// What is known about a call that its client gave up.
#[derive(Debug)]
pub(crate) struct LateCall {
    /// The request's token, as the server knows it.
    pub(crate) token: Option<Key>,
    /// The server's stream for the answer, if known.
    pub(crate) paired: Option<StreamId>,
    /// The tokens that the server has invented for the work. A call that joins the work gets them.
    pub(crate) learned_names: Vec<Key>,
    pub(crate) principal: Principal,
    pub(crate) signature: Signature,
    /// The policy at the time when the call opened.
    pub(crate) policy: Arc<Policy>,
    /// Number of calls that have asked for this work so far.
    pub(crate) attempts: u32,
    /// The name under which the habits of the client are remembered.
    pub(crate) client: HabitKey,
    /// Whether the client was told to call again and has not done so yet.
    pub(crate) is_told: bool,
}

/// A call whose client gave it up, and whose work continues.
pub(crate) type LateWork = Work<LateCall, Message>;

/// A call whose answer was just given to its client. The client may have given the call up before the answer arrived.
#[derive(Debug)]
pub(crate) struct GivenCall {
    /// The text of the request id, as the client wrote it.
    pub(crate) client_id: Bytes,
    /// The call, in the form in which it would continue without its client.
    pub(crate) work: LateWork,
    /// The answer, if it may be given again.
    pub(crate) answer: Option<Message>,
    /// Whether the call has joined the work of another call, so that the server has never seen its id.
    pub(crate) is_joined: bool,
}

impl LateCall {
    /// Returns the settings of late answers with which the call began.
    pub(crate) fn terms(&self) -> &Late {
        &self.policy.of(Some(&self.signature.tool)).late
    }
}

impl LateWork {
    /// Returns the report of an event of this call.
    pub(crate) fn news(&self, event: LateEvent, now: Instant) -> LateNews {
        let LateCall { signature, attempts, .. } = &self.details;
        let (tool, attempts) = (signature.tool.clone(), *attempts);
        LateNews {
            event,
            tool,
            age: self.age(now),
            attempts,
            call: None,
            clock: None,
            is_repeated: false,
        }
    }
}

/// The annotations of the server's tools that matter for late answers.
#[derive(Debug, Default)]
struct ToolAnnotations {
    /// The names of the tools with `destructiveHint`.
    destructive: BTreeSet<String>,
    /// The names of the tools with an `outputSchema`.
    structured: BTreeSet<String>,
    /// Whether the limit of remembered tools was exceeded.
    overflowed: bool,
    /// Whether the server's list of tools could not be read. Then every tool may be destructive.
    unread: bool,
}

/// The calls of one connection that continue without their clients.
#[derive(Debug, Default)]
pub(crate) struct LateCalls {
    pub(crate) works: WorkStore<LateCall, Message>,
    given: VecDeque<GivenCall>,
    tools: ToolAnnotations,
    /// Open calls that are answered with a text before their clients give them up, by the time of that answer.
    early_answers: BTreeSet<(Instant, CallId)>,
    /// Calls that wait for the cancellation of an older call for the same work.
    pub(crate) held: HeldCalls,
    /// The habits of clients without a name.
    pub(super) nameless: ClientHabits,
    /// Whether a client of this connection was not told to call again.
    pub(super) has_not_told: bool,
}

impl LateCalls {
    /// Returns an empty set of calls. `tools_unread`: the server has already listed its tools, and the list was not
    /// read.
    pub(crate) fn new(tools_unread: bool) -> Self {
        let tools = ToolAnnotations { unread: tools_unread, ..ToolAnnotations::default() };
        Self { tools, ..Self::default() }
    }

    /// Removes and returns the oldest call of this principal for the same work.
    pub(crate) fn take_same(&mut self, who: Principal, what: &Signature) -> Option<LateWork> {
        self.works.take(|work| work.details.principal == who && work.details.signature == *what)
    }

    /// Returns the members that may differ between calls for the same work of a tool. They follow from the settings of
    /// the oldest kept call of this tool by the same principal.
    pub(crate) fn ignored_by(&self, who: Principal, tool: &str) -> Option<&[String]> {
        let mut calls = self.works.iter().map(|work| &work.details);
        let call = calls.find(|call| call.principal == who && call.signature.tool == tool)?;
        Some(&call.terms().ignore[..])
    }

    /// Remembers a call whose answer is given to its client now.
    pub(crate) fn remember(&mut self, given: GivenCall) {
        if self.given.len() >= GIVEN_MAX {
            self.given.pop_front();
        }
        self.given.push_back(given);
    }

    /// Removes and returns the call whose answer was just given to this principal with this id.
    pub(crate) fn take_given(&mut self, who: Principal, client_id: &Key) -> Option<GivenCall> {
        let is_meant = |given: &GivenCall| {
            given.work.details.principal == who
                && Key::read(&given.client_id).as_ref() == Some(client_id)
        };
        // The newest call, because clients reuse ids.
        let place = self.given.iter().rposition(is_meant)?;
        self.given.remove(place)
    }

    /// Forgets the answers that were just given to a principal. Calls that have joined work stay remembered, because
    /// the server does not know their ids and must not get a cancellation of them.
    pub(crate) fn forget_given(&mut self, who: Principal) {
        let is_of = |given: &GivenCall| given.work.details.principal == who;
        self.given.retain(|given| !is_of(given) || given.is_joined);
        for given in self.given.iter_mut().filter(|given| is_of(given)) {
            given.answer = None;
        }
    }

    /// Removes and returns all calls.
    pub(crate) fn take_all(&mut self) -> Vec<LateWork> {
        self.early_answers.clear();
        self.given.clear();
        self.works.take_all()
    }

    /// Removes and returns the calls whose deadline has passed.
    pub(crate) fn take_over(&mut self, now: Instant) -> Vec<LateWork> {
        self.given.retain(|given| given.work.until > now);
        self.works.take_over(now)
    }

    /// Returns any call that has no answer yet.
    pub(crate) fn any_running(&self) -> Option<&LateWork> {
        self.works.iter().find(|work| work.is_running())
    }

    /// Returns the server's id of the only unanswered call whose id is `id` in another spelling.
    pub(crate) fn running_in_other_spelling(&self, id: &Key) -> Option<Key> {
        let (class, other) = (id.class_of_value(), id.in_other_type());
        let is_meant = |work: &&LateWork| {
            let is_number = class.is_some() && work.server_id.class() == class;
            work.is_running() && (is_number || other.as_ref() == Some(&work.server_id))
        };
        let mut meant = self.works.iter().filter(is_meant);
        let only = meant.next().filter(|_| meant.next().is_none());
        only.map(|work| work.server_id.clone())
    }

    /// Returns the number of bytes of the answers that are kept.
    pub(crate) fn bytes(&self) -> usize {
        let given = self.given.iter().filter_map(|given| given.answer.as_ref());
        self.works.bytes() + given.map(KeptBytes::kept_bytes).sum::<usize>()
    }

    /// Whether nothing is kept and nothing is planned.
    pub(crate) fn is_empty(&self) -> bool {
        self.works.is_empty()
            && self.given.is_empty()
            && self.early_answers.is_empty()
            && self.held.len() == 0
    }

    /// Returns the time of the next planned action.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        // All given answers are remembered for the same time, so the oldest is forgotten first.
        let given = self.given.front().map(|given| given.work.until);
        let over = self.works.next_due().into_iter().chain(given);
        let told = self.early_answers.first().map(|(at, _)| *at);
        over.chain(told).chain(self.held.next_due()).min()
    }

    /// Plans when an open call is answered with a text before its client gives it up.
    pub(crate) fn plan_words(&mut self, at: Instant, call: CallId) {
        self.early_answers.insert((at, call));
    }

    /// Removes and returns the next open call that has to be answered with a text now.
    pub(crate) fn next_told(&mut self, now: Instant) -> Option<CallId> {
        let first = self.early_answers.first().copied().filter(|(at, _)| *at <= now)?;
        self.early_answers.remove(&first);
        Some(first.1)
    }

    /// Reads the annotations of the server's tools, if they can be read.
    pub(crate) fn note_tools(&mut self, result: &Bytes) {
        #[derive(serde::Deserialize)]
        struct Tools {
            tools: Vec<Tool>,
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Tool {
            name: String,
            #[serde(default)]
            annotations: Option<Annotations>,
            #[serde(default)]
            output_schema: Option<serde::de::IgnoredAny>,
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Annotations {
            #[serde(default)]
            destructive_hint: Option<bool>,
        }
        let Ok(Tools { tools }) = serde_json::from_slice(result) else { return };
        let known = &mut self.tools;
        known.unread = false;
        for tool in tools {
            let is_new = known.destructive.len() + known.structured.len() < TOOLS_MAX;
            let hint = tool.annotations.and_then(|annotations| annotations.destructive_hint);
            let names = [
                (&mut known.destructive, hint == Some(true)),
                (&mut known.structured, tool.output_schema.is_some()),
            ];
            for (names, is_so) in names {
                // The server may have changed the annotation since an earlier list.
                if !is_so {
                    names.remove(&tool.name);
                } else if is_new {
                    names.insert(tool.name.clone());
                } else {
                    known.overflowed = true;
                }
            }
        }
    }

    /// Whether the server says that a tool may be destructive, or its list of tools could not be read.
    pub(crate) fn is_destructive(&self, tool: &str) -> bool {
        // If the limit is exceeded, every tool counts as destructive, so that no destructive work continues by mistake.
        self.tools.unread || self.tools.overflowed || self.tools.destructive.contains(tool)
    }

    /// Whether the results of a tool have a schema. A text alone does not conform to it.
    pub(crate) fn is_structured(&self, tool: &str) -> bool {
        self.tools.structured.contains(tool)
    }
}
