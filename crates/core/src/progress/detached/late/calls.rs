//! The calls that their clients gave up, and whose work continues.

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

/// Maximum number of calls of one connection whose answers were just given and are remembered, because a client may
/// give up a call at that moment. Beyond it the oldest is forgotten.
const GIVEN_MAX: usize = 16;

/// Maximum number of tools of one server whose annotations are remembered.
const TOOLS_MAX: usize = 4096;

/// The facts about a call whose client gave it up.
#[derive(Debug)]
pub(crate) struct LateCall {
    /// The server's token of the request.
    pub(crate) token: Option<Key>,
    /// The upstream stream that the server answers on, if the stream is known.
    pub(crate) paired: Option<StreamId>,
    /// The tokens of its own by which the server means the work. They go over to the call that joins the work.
    pub(crate) learned_names: Vec<Key>,
    pub(crate) principal: Principal,
    pub(crate) signature: Signature,
    /// The policy at the time when the call opened.
    pub(crate) policy: Arc<Policy>,
    /// Number of calls so far that asked for this work.
    pub(crate) attempts: u32,
    /// The name by which the habits of the client are remembered.
    pub(crate) client: HabitKey,
    /// The client was told to call again, and has not done so yet.
    pub(crate) is_told: bool,
}

/// A call whose client gave it up, and whose work continues.
pub(crate) type LateWork = Work<LateCall, Message>;

/// A call whose answer was given to its client, which may have given the call up before the answer came.
#[derive(Debug)]
pub(crate) struct GivenCall {
    /// The client's text of the request's id.
    pub(crate) client_id: Bytes,
    /// The call.
    pub(crate) work: LateWork,
    /// The answer, if it may be given once more.
    pub(crate) answer: Option<Message>,
    /// The call joined some work: the server has never seen its id.
    pub(crate) is_joined: bool,
}

impl LateCall {
    /// The settings that the call began with.
    pub(crate) fn terms(&self) -> &Late {
        &self.policy.of(Some(&self.signature.tool)).late
    }
}

impl LateWork {
    /// The event `event` of this call.
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

/// The annotations of tools that matter here, from the server's list of tools.
#[derive(Debug, Default)]
struct ToolAnnotations {
    /// Tools with `destructiveHint`.
    destructive: BTreeSet<String>,
    /// Tools with an `outputSchema`.
    structured: BTreeSet<String>,
    /// Whether the limit on remembered tools was exceeded.
    overflowed: bool,
    /// Whether the server has listed its tools, but its list could not be read. Then each tool may be destructive.
    unread: bool,
}

/// The calls of one connection that continue without their clients.
#[derive(Debug, Default)]
pub(crate) struct LateCalls {
    pub(crate) works: WorkStore<LateCall, Message>,
    given: VecDeque<GivenCall>,
    tools: ToolAnnotations,
    /// Open calls that are to be answered with a text, by the time of that answer.
    early_answers: BTreeSet<(Instant, CallId)>,
    /// Calls that wait for the cancellation of an older call for the same work.
    pub(crate) held: HeldCalls,
    /// The habits of clients without a name.
    pub(super) nameless: ClientHabits,
    /// A client of this connection was not told to call again.
    pub(super) has_not_told: bool,
}

impl LateCalls {
    /// No calls. `tools_unread`: the server has listed its tools before.
    pub(crate) fn new(tools_unread: bool) -> Self {
        let tools = ToolAnnotations { unread: tools_unread, ..ToolAnnotations::default() };
        Self { tools, ..Self::default() }
    }

    /// Takes the oldest call that asked for the same work for the same principal.
    pub(crate) fn take_same(&mut self, who: Principal, what: &Signature) -> Option<LateWork> {
        self.works.take(|work| work.details.principal == who && work.details.signature == *what)
    }

    /// Returns the members that may differ between equal calls of a tool, according to the settings of its oldest
    /// running call of the same principal.
    pub(crate) fn ignored_by(&self, who: Principal, tool: &str) -> Option<&[String]> {
        let mut calls = self.works.iter().map(|work| &work.details);
        let call = calls.find(|call| call.principal == who && call.signature.tool == tool)?;
        Some(&call.terms().ignore[..])
    }

    /// Remembers a call whose answer goes to its client.
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
        // The newest, because clients reuse ids.
        let place = self.given.iter().rposition(is_meant)?;
        self.given.remove(place)
    }

    /// Forgets the answers that were just given to a principal. The ids of calls that joined stay: the server knows none
    /// of them, and must see no cancellation.
    pub(crate) fn forget_given(&mut self, who: Principal) {
        let is_of = |given: &GivenCall| given.work.details.principal == who;
        self.given.retain(|given| !is_of(given) || given.is_joined);
        for given in self.given.iter_mut().filter(|given| is_of(given)) {
            given.answer = None;
        }
    }

    /// Takes every call.
    pub(crate) fn take_all(&mut self) -> Vec<LateWork> {
        self.early_answers.clear();
        self.given.clear();
        self.works.take_all()
    }

    /// Removes and returns the calls whose time is over.
    pub(crate) fn take_over(&mut self, now: Instant) -> Vec<LateWork> {
        self.given.retain(|given| given.work.until > now);
        self.works.take_over(now)
    }

    /// Some call without an answer.
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

    /// Bytes of the answers that are kept.
    pub(crate) fn bytes(&self) -> usize {
        let given = self.given.iter().filter_map(|given| given.answer.as_ref());
        self.works.bytes() + given.map(KeptBytes::kept_bytes).sum::<usize>()
    }

    /// Whether nothing is planned.
    pub(crate) fn is_empty(&self) -> bool {
        self.works.is_empty()
            && self.given.is_empty()
            && self.early_answers.is_empty()
            && self.held.len() == 0
    }

    /// Returns the time of the next planned action.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        // All answers are remembered equally long, so the oldest ends first.
        let given = self.given.front().map(|given| given.work.until);
        let over = self.works.next_due().into_iter().chain(given);
        let told = self.early_answers.first().map(|(at, _)| *at);
        over.chain(told).chain(self.held.next_due()).min()
    }

    /// Plans the early answer with a text for an open call.
    pub(crate) fn plan_words(&mut self, at: Instant, call: CallId) {
        self.early_answers.insert((at, call));
    }

    /// Removes and returns the next open call that is to be answered with a text now.
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
                // A later list of the server may have changed the annotation.
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
        // Beyond the limit every tool counts as destructive, because work must not continue by mistake.
        self.tools.unread || self.tools.overflowed || self.tools.destructive.contains(tool)
    }

    /// Whether the results of a tool have a schema, which a text alone does not satisfy.
    pub(crate) fn is_structured(&self, tool: &str) -> bool {
        self.tools.structured.contains(tool)
    }
}
