//! The policies of one filter: the policy for new calls, and older policies of calls that are still
//! open.

use std::sync::Arc;

use crate::progress::dialect::report::{Report, TextSource};
use crate::progress::dialect::{Dialect, Fields};
use crate::progress::policy::{CallPolicy, Mode, Policy};
use crate::protocol::jsonrpc::{Key, Kind, Message};
use crate::protocol::mcp;

/// The policies that one filter uses. Dereferences to the policy for new calls. The methods here consider all policies,
/// because the call of a message is not known yet.
#[derive(Debug, Clone)]
pub(crate) struct Policies {
    pub(crate) now: Arc<Policy>,
    /// Policies of open calls that began earlier; usually none.
    pub(crate) older: Vec<Arc<Policy>>,
    /// Whether the standard dialect is the only one that reads `notifications/progress` under `now`; `None` until this
    /// is needed.
    standard_alone: Option<bool>,
    /// Whether no log message is read as progress under `now`; `None` until this is needed.
    forwards_logs: Option<bool>,
    /// The policy that was requested last. `now` may differ from it in settings that a connection cannot change.
    pub(crate) wanted: Arc<Policy>,
}

impl std::ops::Deref for Policies {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.now
    }
}

impl Policies {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        let wanted = Arc::clone(&policy);
        Self { wanted, now: policy, older: Vec::new(), standard_alone: None, forwards_logs: None }
    }

    /// Whether, for every call, the standard dialect is the only one that reads `notifications/progress`.
    pub(crate) fn has_standard_alone(&mut self) -> bool {
        let alone = *self.standard_alone.get_or_insert_with(|| self.now.has_standard_alone());
        alone && self.older.is_empty()
    }

    /// Whether, for every call, no log message is read as progress.
    pub(crate) fn forwards_logs(&mut self) -> bool {
        let now = &self.now;
        let are_plain = || !now.listens_to(TextSource::Log) && !now.claims(mcp::LOG);
        *self.forwards_logs.get_or_insert_with(are_plain) && self.older.is_empty()
    }

    /// Replaces the policy of new calls, and keeps the replaced policy for open calls.
    pub(crate) fn replace(&mut self, now: Arc<Policy>) {
        self.older.retain(|older| !Arc::ptr_eq(older, &now));
        self.older.push(std::mem::replace(&mut self.now, now));
        (self.standard_alone, self.forwards_logs) = (None, None);
    }

    /// Returns the policy of calls that open from now on.
    pub(crate) fn now(&self) -> &Arc<Policy> {
        &self.now
    }

    fn all(&self) -> impl Iterator<Item = &Policy> {
        std::iter::once(&self.now).chain(&self.older).map(|policy| &**policy)
    }

    /// Whether a dialect of any policy claims a method.
    pub(crate) fn claims(&self, method: &str) -> bool {
        self.all().any(|policy| policy.claims(method))
    }

    /// Returns the reports of a message: one for each dialect that can read it.
    pub(crate) fn reports<'a>(
        &'a self,
        method: &'a str,
        message: &'a Message,
    ) -> impl Iterator<Item = (&'a Dialect, Report)> {
        // The message is parsed at most once, and only if a dialect needs that.
        let mut read = None;
        self.dialects_of(method).filter_map(move |dialect| {
            if let Some(report) = dialect.read_plain(message) {
                return Some((dialect, report));
            }
            let params =
                read.get_or_insert_with(|| message.params().as_ref().and_then(Fields::read));
            Some((dialect, dialect.read(method, message, params.as_ref()?)?))
        })
    }

    /// Returns the reports of a message that is forwarded unchanged: one for each dialect that overhears it.
    pub(crate) fn overheard<'a>(
        &'a self,
        method: &'a str,
        message: &'a Message,
    ) -> impl Iterator<Item = (&'a Dialect, Report)> {
        // The progress in an overheard message is an addition to the server's messages, like a heartbeat. Additions are
        // only allowed in the mode `full`.
        let all = self.everywhere().filter(|policy| policy.mode == Mode::Full);
        let all = all.flat_map(|policy| &policy.dialects);
        let mut dialects = all.filter(move |dialect| dialect.overhears(method)).peekable();
        let params = dialects.peek().and_then(|_| Fields::read(&message.params()?));
        dialects.filter_map(move |dialect| {
            Some((dialect, dialect.read(method, message, params.as_ref()?)?))
        })
    }

    fn dialects_of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Dialect> {
        // A dialect that several policies name is tried only once, with the first of them.
        let older = self.older.iter().enumerate().flat_map(move |(place, policy)| {
            let before = move || std::iter::once(&self.now).chain(&self.older[..place]);
            let is_known = move |dialect: &Dialect| {
                before().any(|policy| policy.dialects_of(method).any(|known| known == dialect))
            };
            policy.dialects_of(method).filter(move |dialect| !is_known(dialect))
        });
        self.now.dialects_of(method).chain(older)
    }

    /// Whether messages that are about no known call are forwarded unchanged, while messages of some tools are
    /// repaired.
    pub(crate) fn observes_the_rest(&self) -> bool {
        self.now.call.observes() && !self.now.observes()
    }

    /// Returns the reports of a message, each with its dialect.
    pub(crate) fn read_reports(&self, message: &Message) -> Vec<(Dialect, Report)> {
        let Some(method) = message.method() else { return Vec::new() };
        let reports = self.reports(&method, message);
        reports.map(|(dialect, report)| (dialect.clone(), report)).collect()
    }

    /// Whether a dialect claims a notification.
    pub(crate) fn claims_progress(&self, message: &Message) -> bool {
        message.kind() == Kind::Notification
            && message.method().is_some_and(|method| self.claims(&method))
    }

    /// Returns the token in a progress message.
    pub(crate) fn named_token(&self, message: &Message) -> Option<Key> {
        let method = message.method()?;
        self.reports(&method, message).find_map(|(_, report)| report.about.token)
    }

    /// Whether text of `source` is read as progress for any tool.
    pub(crate) fn listens_to(&self, source: TextSource) -> bool {
        self.all().any(|policy| policy.listens_to(source))
    }

    /// Returns the settings of all tools in all policies.
    pub(crate) fn everywhere(&self) -> impl Iterator<Item = &CallPolicy> {
        self.all().flat_map(Policy::everywhere)
    }

    /// Forgets the policies that no open call needs.
    pub(crate) fn forget(&mut self, is_needed: impl Fn(&Arc<Policy>) -> bool) {
        self.older.retain(is_needed);
    }
}
