//! The change of policy for calls that open from now on.

use std::sync::Arc;

use crate::progress::intake::state::Intake;
use crate::progress::policy::Policy;

impl Intake {
    /// Sets the policy of calls that open from now on. Open calls keep their policy, also for the
    /// server's messages about them. Settings of the whole connection stay: whether the server is
    /// shared (`id_mapping`), and the facts learned about the server. A change to or from a policy that only
    /// observes applies with the first call that opens while no other call is open.
    pub fn set_policy(&mut self, policy: &Arc<Policy>) {
        self.reports = None;
        self.gate.calls.set_policy(policy, !self.large_messages.is_empty());
    }

    /// Applies the changes that waited for the end of all calls, when a new call opens.
    pub(crate) fn apply_pending_policy(&mut self) {
        if self.gate.calls.policy.wanted.observes() != self.gate.calls.policy.now.observes() {
            let wanted = Arc::clone(&self.gate.calls.policy.wanted);
            self.set_policy(&wanted);
        }
    }
}
