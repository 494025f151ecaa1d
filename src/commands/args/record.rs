//! The arguments of recordings and of `milepost replay`.

use std::path::PathBuf;

use clap::Args;

use super::WrapError;
use super::policy::PolicyArgs;
use crate::config::routes::Routes;
use crate::observe::record::Recording;
use crate::progress::Policy;

#[derive(Debug, Default, Args)]
pub(super) struct RecordArgs {
    /// Record each conversation in a file of its own in this folder; `milepost replay` plays it
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Do not mask text that looks like a secret in recordings
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
    /// Print the recording as a transcript for tests, with the present output
    #[arg(long)]
    pub as_test: bool,
    /// Play again whenever the recording or the route file is saved, until Ctrl-C
    #[arg(long, conflicts_with = "as_test")]
    pub watch: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

impl ReplayArgs {
    /// The files that a replay depends on.
    pub fn files(&self) -> Vec<PathBuf> {
        std::iter::once(self.file.clone()).chain(self.policy.config.clone()).collect()
    }

    /// Whether the settings come from a route file, and not from the recording.
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
        if let Some(preset) = self.policy.preset(&own)? {
            preset.apply(policy);
            own = preset.dialects().to_vec();
        }
        self.policy.settings(&own).map_err(WrapError::Setting)?.apply(policy);
        Ok(())
    }
}
