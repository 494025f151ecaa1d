//! The arguments of recordings and of `milepost replay`.

use std::path::PathBuf;

use clap::Args;

use super::WrapError;
use super::policy::PolicyArgs;
use crate::config::routes::Routes;
use crate::observe::record::Recording;
use crate::progress::Policy;

#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// Record each conversation in a file of its own in this folder; `milepost replay` plays it
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Keep what looks like a secret in recordings, which is masked otherwise
    #[arg(long, requires = "record")]
    record_secrets: bool,
}

impl RecordArgs {
    pub(super) fn recording(&self) -> Option<Recording> {
        let folder = self.record.clone()?;
        Some(Recording { folder, secrets: self.record_secrets })
    }
}

/// `milepost replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print it as a transcript for tests, with what comes out now
    #[arg(long)]
    pub as_test: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

impl ReplayArgs {
    /// Whether a route file says what holds, and the recording does not.
    pub fn has_config(&self) -> bool {
        self.policy.config.is_some()
    }

    /// Lays the route file and the flags over `policy`.
    ///
    /// # Errors
    /// If the route file cannot be used.
    pub fn apply(&self, policy: &mut Policy) -> Result<(), WrapError> {
        let mut own = Vec::new();
        if let Some(file) = &self.policy.config {
            let routes = Routes::load(file)?;
            routes.apply_defaults(policy);
            routes.find(self.policy.route.as_deref())?.apply(policy);
            own = routes.dialects().to_vec();
        }
        self.policy.settings(&own).map_err(WrapError::Dialect)?.apply(policy);
        Ok(())
    }
}
