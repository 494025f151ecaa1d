//! The policies that hold in one filter: the one for calls from now on, and those of calls that began
//! under another and are still open.

use std::sync::Arc;

use crate::progress::Filter;
use crate::progress::correlate::call::CallId;
use crate::progress::correlate::ledger::Ledger;
use crate::progress::correlate::session_split;
use crate::progress::dialect::{Dialect, Fields, Report, TextSource};
use crate::progress::policy::{CallPolicy, Mode, Policy};
use crate::protocol::jsonrpc::Message;

/// Policies of open calls that are remembered besides the policy of new calls. Beyond the limit new
/// calls use the newest remembered policy until an older one is no longer needed.
const OLDER_MAX: usize = 64;

/// The policies that hold in one filter. Whatever is said of `Policy` itself is said of the one for new
/// calls; what is asked here, is asked of all: it is not known yet whose call a message is about.
#[derive(Debug, Clone)]
pub(crate) struct Policies {
    now: Arc<Policy>,
    /// Those of calls that are open and began before; usually none.
    older: Vec<Arc<Policy>>,
    /// What was asked for last. `now` differs from it in what a connection keeps.
    wanted: Arc<Policy>,
}

impl std::ops::Deref for Policies {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.now
    }
}

impl Policies {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self { wanted: Arc::clone(&policy), now: policy, older: Vec::new() }
    }

    /// The one for calls from now on.
    pub(crate) fn now(&self) -> &Arc<Policy> {
        &self.now
    }

    fn all(&self) -> impl Iterator<Item = &Policy> {
        std::iter::once(&self.now).chain(&self.older).map(|policy| &**policy)
    }

    /// Whether a dialect of any of them claims a method.
    pub(crate) fn claims(&self, method: &str) -> bool {
        self.all().any(|policy| policy.claims(method))
    }

    /// What a message claims in each dialect that can read it, each dialect once.
    pub(crate) fn reports<'a>(
        &'a self,
        method: &'a str,
        message: &'a Message,
    ) -> impl Iterator<Item = (&'a Dialect, Report)> {
        let params = message.params().as_ref().and_then(Fields::read);
        params.into_iter().flat_map(move |params| {
            let read = move |dialect: &'a Dialect| {
                Some((dialect, dialect.read(method, message, &params)?))
            };
            self.dialects_of(method).filter_map(read)
        })
    }

    fn dialects_of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Dialect> {
        let older = self.older.iter().enumerate().flat_map(move |(place, policy)| {
            let before = move || std::iter::once(&self.now).chain(&self.older[..place]);
            let is_known = move |dialect: &Dialect| {
                before().any(|policy| policy.dialects_of(method).any(|known| known == dialect))
            };
            policy.dialects_of(method).filter(move |dialect| !is_known(dialect))
        });
        self.now.dialects_of(method).chain(older)
    }

    /// Whether text of `source` is taken for progress of any tool.
    pub(crate) fn listens_to(&self, source: TextSource) -> bool {
        self.all().any(|policy| policy.listens_to(source))
    }

    /// What holds for tools, in any of them.
    pub(crate) fn everywhere(&self) -> impl Iterator<Item = &CallPolicy> {
        self.all().flat_map(Policy::everywhere)
    }

    /// Forgets those by which no open call goes.
    fn forget(&mut self, ledger: &Ledger) {
        let is_needed =
            |policy: &Arc<Policy>| ledger.iter().any(|(_, call)| Arc::ptr_eq(&call.policy, policy));
        self.older.retain(is_needed);
    }
}

impl Policy {
    /// Whether nothing of it is changed.
    pub fn observes(&self) -> bool {
        self.mode == Mode::Observe
    }
}

impl Filter {
    /// Calls that open from now on go by `policy`. Those that are open go on as they began, also for what
    /// the server says of them. What holds for a connection as a whole stays: whether the server is shared
    /// (`remap`), the pacing of streams that are open, and what the server puts where tokens belong. To or
    /// from [`Mode::Observe`] it changes with the first call that opens while no other is.
    pub fn take(&mut self, policy: &Arc<Policy>) {
        let policies = &mut self.policy;
        let is_wanted = Arc::ptr_eq(&policies.wanted, policy);
        if is_wanted && policies.now.observes() == policy.observes() {
            return;
        }
        policies.forget(&self.ledger);
        let is_full = policies.older.len() >= OLDER_MAX;
        let observes = policies.now.observes();
        let keeps_mode = observes != policy.observes() && !self.is_idle();
        if is_full || is_wanted && keeps_mode {
            return;
        }
        let policies = &mut self.policy;
        let now = if keeps_mode || policies.now.remap != policy.remap {
            let mode = if keeps_mode { policies.now.mode } else { policy.mode };
            Arc::new(Policy { mode, remap: policies.now.remap, ..(**policy).clone() })
        } else {
            Arc::clone(policy)
        };
        policies.wanted = Arc::clone(policy);
        policies.older.retain(|older| !Arc::ptr_eq(older, &now));
        policies.older.push(std::mem::replace(&mut policies.now, now));
        policies.forget(&self.ledger);
        if self.policy.renames_tokens() {
            self.ledger.rename();
        }
        self.gives_strings |= self.policy.gives_strings();
    }

    /// A call opens: what waited for the end of all others may hold now.
    pub(crate) fn apply_pending_policy(&mut self) {
        if self.policy.wanted.observes() != self.policy.now.observes() {
            let wanted = Arc::clone(&self.policy.wanted);
            self.take(&wanted);
        }
    }

    /// The policy of calls that open from now on.
    pub fn policy(&self) -> &Arc<Policy> {
        self.policy.now()
    }

    /// Whether nothing is under way that goes by a policy. What the requests of a session share is never
    /// idle: they go by the policies of filters of their own.
    fn is_idle(&self) -> bool {
        self.part == session_split::FilterRole::Whole
            && self.ledger.iter().next().is_none()
            && self.large_messages.is_empty()
            && self.is_drained()
    }

    /// A call is over.
    pub(crate) fn forget_policies(&mut self) {
        if !self.policy.older.is_empty() {
            self.policy.forget(&self.ledger);
        }
    }

    /// The policy by which a call goes; that of new ones if it is not known.
    pub(crate) fn policy_of(&self, call: CallId) -> &Policy {
        self.ledger.get(call).map_or(&self.policy, |call| &call.policy)
    }
}
