//! The arguments of recordings and of `milepost replay`.

use std::path::PathBuf;

use clap::Args;

use super::WrapError;
use super::policy::PolicyArgs;
use crate::config::routes::Routes;
use crate::lab::color::ColorChoice;
use crate::lab::replay::{ReplayForm, ReportCount};
use crate::observe::record::{RecordedSecrets, Recording};
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
        let secrets = match self.record_secrets {
            true => RecordedSecrets::Unmasked,
            false => RecordedSecrets::Masked,
        };
        Some(Recording { folder, secrets })
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
    /// Show both sides of each call, again whenever the recording or the route file is saved
    #[arg(long, conflicts_with = "as_test")]
    pub watch: bool,
    /// With --watch: print the lines of the recording and the differences instead
    #[arg(long, requires = "watch")]
    pub raw: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

impl ReplayArgs {
    /// Returns the form of the result. `before` are the reports of the previous run.
    pub fn form(&self, before: Option<ReportCount>) -> ReplayForm {
        match () {
            () if self.as_test => ReplayForm::Test,
            () if self.watch && !self.raw => {
                ReplayForm::Table { before, colors: ColorChoice::default().palette() }
            }
            () => ReplayForm::Lines,
        }
    }

    /// Returns the files that a replay depends on.
    pub fn files(&self) -> Vec<PathBuf> {
        std::iter::once(self.file.clone()).chain(self.policy.config.clone()).collect()
    }

    /// Returns the settings of the replay: those of the recording or of the route file, changed by the flags.
    ///
    /// # Errors
    /// If the route file cannot be used.
    pub fn settings(&self, recorded: Policy) -> Result<Policy, WrapError> {
        let mut policy = if self.policy.config.is_some() { Policy::default() } else { recorded };
        let mut own = Vec::new();
        if let Some(file) = &self.policy.config {
            let routes = Routes::load(file)?;
            routes.apply_defaults(&mut policy);
            routes.find(self.policy.route.as_deref())?.apply(&mut policy);
            own = routes.dialects().to_vec();
        }
        if let Some(preset) = self.policy.preset(&own)? {
            preset.apply(&mut policy);
            own = preset.dialects().to_vec();
        }
        self.policy.settings(&own).map_err(WrapError::Setting)?.apply(&mut policy);
        Ok(policy)
    }
}
