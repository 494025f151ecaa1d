//! The change of policy for calls that open from now on.

use std::sync::Arc;

use crate::progress::filter::Filter;
use crate::progress::ids::CallId;
use crate::progress::policy::Policy;

/// Policies of open calls that are remembered besides the policy of new calls. Beyond the limit new
/// calls use the newest remembered policy until an older one is no longer needed.
const OLDER_MAX: usize = 64;

impl Filter {
    /// Sets the policy of calls that open from now on. Open calls keep their policy, also for the
    /// server's messages about them. Settings of the whole connection stay: whether the server is
    /// shared (`id_mapping`), and the facts learned about the server. A change to or from a policy that only
    /// observes applies with the first call that opens while no other call is open.
    pub fn set_policy(&mut self, policy: &Arc<Policy>) {
        let policies = &mut self.policy;
        let is_wanted = Arc::ptr_eq(&policies.wanted, policy);
        if is_wanted && policies.now.observes() == policy.observes() {
            return;
        }
        self.intake.reports = None;
        policies.forget(&self.correlator.ledger);
        let is_full = policies.older.len() >= OLDER_MAX;
        let observes = policies.now.observes();
        let keeps_mode = observes != policy.observes() && !self.is_idle();
        if is_full || is_wanted && keeps_mode {
            return;
        }
        let policies = &mut self.policy;
        let now = if keeps_mode || policies.now.id_mapping != policy.id_mapping {
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
        policies.forget(&self.correlator.ledger);
        if self.policy.renames_tokens() {
            self.correlator.ledger.rename();
        }
        self.correlator.gives_strings |= self.policy.gives_strings();
    }

    /// Applies the changes that waited for the end of all calls, when a new call opens.
    pub(crate) fn apply_pending_policy(&mut self) {
        if self.policy.wanted.observes() != self.policy.now.observes() {
            let wanted = Arc::clone(&self.policy.wanted);
            self.set_policy(&wanted);
        }
    }

    /// The policy of calls that open from now on.
    pub fn policy(&self) -> &Arc<Policy> {
        self.policy.now()
    }

    /// Whether no open call uses the policy. The shared filter of a session is never idle, because
    /// its requests use the policies of their own filters.
    fn is_idle(&self) -> bool {
        self.topology.is_whole()
            && self.correlator.ledger.iter().next().is_none()
            && self.intake.large_messages.is_empty()
            && self.is_drained()
    }

    /// A call is over.
    pub(crate) fn forget_policies(&mut self) {
        if !self.policy.older.is_empty() {
            self.policy.forget(&self.correlator.ledger);
        }
    }

    /// The policy of a call; the policy of new calls if the call is unknown.
    pub(crate) fn policy_of(&self, call: CallId) -> &Policy {
        self.correlator.ledger.get(call).map_or(&self.policy, |call| &call.policy)
    }
}
