//! The policies of open calls and of new ones.

use std::sync::Arc;

use crate::progress::correlate::correlator::Correlator;
use crate::progress::correlate::ledger::Ledger;
use crate::progress::dialect::Dialect;
use crate::progress::dialect::report::Report;
use crate::progress::ids::CallId;
use crate::progress::policy::Policy;
use crate::protocol::jsonrpc::{Kind, Message};

/// Policies of open calls that are remembered besides the policy of new calls. Beyond the limit new
/// calls use the newest remembered policy until an older one is no longer needed.
const OLDER_MAX: usize = 64;

impl Correlator {
    /// Whether a message that is about no known call may be another client's.
    pub(crate) fn is_private(&self) -> bool {
        self.topology.has_strangers() || !self.elsewhere.is_empty()
    }

    /// Whether a message that is about no known call passes as it came, beside others that are changed.
    pub(crate) fn observes_the_rest(&self) -> bool {
        self.policy.call.observes() && !self.policy.observes()
    }

    /// Whether a call is observed beside others that are changed.
    pub(crate) fn is_observed(&self, call: CallId) -> bool {
        self.ledger.get(call).is_some_and(|call| call.is_observed())
    }

    pub(crate) fn read_reports(&self, message: &Message) -> Vec<(Dialect, Report)> {
        let Some(method) = message.method() else { return Vec::new() };
        let reports = self.policy.reports(&method, message);
        reports.map(|(dialect, report)| (dialect.clone(), report)).collect()
    }

    /// Whether a dialect claims a notification.
    pub(crate) fn claims_progress(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && message.method().is_some_and(|method| self.policy.claims(&method))
    }

    /// Forgets the older policies that no open call uses any more.
    pub(crate) fn forget_policies(&mut self) {
        if !self.policy.older.is_empty() {
            self.policy.forget(needed_in(&self.ledger));
        }
    }

    /// Sets the policy of calls that open from now on. `is_reading`: a message of the server has come only in part.
    pub(crate) fn set_policy(&mut self, policy: &Arc<Policy>, is_reading: bool) {
        let policies = &mut self.policy;
        let is_wanted = Arc::ptr_eq(&policies.wanted, policy);
        if is_wanted && policies.now.observes() == policy.observes() {
            return;
        }
        policies.forget(needed_in(&self.ledger));
        let is_full = policies.older.len() >= OLDER_MAX;
        // Observe mode keeps its messages in another queue than repair mode. The mode changes only
        // while nothing is open and nothing waits, or the order of messages would change.
        let observes = policies.now.observes();
        let keeps_mode = observes != policy.observes() && (is_reading || !self.is_idle());
        if is_full || is_wanted && keeps_mode {
            return;
        }
        let policies = &mut self.policy;
        let now = if keeps_mode || policies.now.id_mapping != policy.id_mapping {
            // The mapping of ids holds for the whole connection: the server knows open and ended
            // requests by names of one kind.
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
        policies.forget(needed_in(&self.ledger));
        if self.policy.renames_tokens() {
            self.ledger.rename();
        }
        self.gives_strings |= self.policy.gives_strings();
    }

    /// Whether no open call uses the policy. The shared filter of a session is never idle, because
    /// its requests use the policies of their own filters.
    fn is_idle(&self) -> bool {
        self.topology.is_whole() && self.iter().next().is_none() && self.is_drained()
    }
}

/// Whether an open call uses a policy.
fn needed_in(ledger: &Ledger) -> impl Fn(&Arc<Policy>) -> bool {
    |policy| ledger.iter().any(|(_, call)| Arc::ptr_eq(&call.policy, policy))
}
