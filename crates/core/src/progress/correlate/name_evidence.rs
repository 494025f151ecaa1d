//! What has been learned about the names that a server uses for calls.

use std::time::Instant;

use crate::progress::correlate::call::Call;
use crate::progress::correlate::evidence::Evidence;
use crate::progress::correlate::known_tokens::{KnownToken, KnownTokens};
use crate::progress::correlate::open_calls::{Attributed, OpenCalls};
use crate::progress::correlate::strays::Strays;
use crate::progress::dialect::report::About;
use crate::progress::event::Origin;
use crate::progress::ids::CallId;
use crate::progress::policy::TokenIs;
use crate::progress::streams::ClientStreams;
use crate::progress::verdict::Repair;
use crate::protocol::jsonrpc::Key;
use crate::protocol::mcp;

/// What has been learned about the names that a server uses for calls, in addition to the calls' own names.
#[derive(Debug)]
pub(crate) struct NameEvidence {
    kind: Evidence,
    /// Tokens in the current message that only calls of other sessions have. They cannot mean a call of this session.
    pub(crate) elsewhere: Vec<Key>,
    /// Names that belong to no call.
    pub(crate) strays: Strays,
    known: KnownTokens,
}

impl NameEvidence {
    /// Returns the state without any evidence except the route's setting.
    pub(crate) fn new(setting: Option<TokenIs>) -> Self {
        Self {
            kind: Evidence::from_setting(setting),
            elsewhere: Vec::new(),
            strays: Strays::default(),
            known: KnownTokens::default(),
        }
    }

    /// Returns the cached token with this text, if its meaning is still the same.
    pub(crate) fn known_token(&self, text: &[u8], open: &OpenCalls) -> Option<&KnownToken> {
        self.known.get(text, (open.ledger.changes(), self.kind))
    }

    /// Caches the meaning of a token for the next message.
    pub(crate) fn note_token(
        &mut self,
        text: &[u8],
        key: Key,
        means: Attributed,
        open: &OpenCalls,
    ) {
        let is_given = open.has_token(&key);
        self.known.note(text, key, (means, is_given), (open.ledger.changes(), self.kind));
    }

    /// Returns the kind of value that the server sends as the token of a call. The settings of the call take precedence
    /// over what has been learned.
    fn of_call(&self, call: CallId, open: &OpenCalls) -> Evidence {
        let settings = open.get(call).map(Call::settings);
        match settings.and_then(|settings| settings.token_is) {
            Some(token_is) => Evidence::from_setting(Some(token_is)),
            None => self.kind,
        }
    }

    /// Returns the open call with this token.
    pub(crate) fn by_token(&mut self, token: &Key, open: &OpenCalls) -> Option<Attributed> {
        let as_id = open.ledger.by_id(token);
        // This server is known to send request ids as tokens. If the value also equals the token of another call, that
        // is a coincidence.
        if let Some(call) = as_id
            && self.of_call(call, open) == Evidence::OnlyIds
        {
            return Some((call, Some(Repair::Token)));
        }
        if let Some(call) = open.ledger.by_token(token) {
            // The value is a token and not an id, so from now on the server is known to send tokens.
            if as_id.is_none() {
                self.kind = Evidence::Tokens;
            }
            return Some((call, None));
        }
        // Tried last, because an exact name takes precedence over another spelling of the name.
        open.ledger.by_token_in_other_spelling(token).map(|call| (call, Some(Repair::Token)))
    }

    /// Returns the call of a POST if a report on the POST's own stream has exactly the call's token or id. On this
    /// stream the name means that call, even if other calls have the name too.
    pub(crate) fn own_on(
        &mut self,
        origin: Origin,
        name: &Key,
        open: &OpenCalls,
        streams: &ClientStreams,
    ) -> Option<Attributed> {
        let Origin::Stream(on) = origin else { return None };
        let is_own = |id: &CallId| {
            open.get(*id).is_some_and(|call| match call.paired {
                Some(upstream) => upstream == on,
                None => call.stream == on && streams.is_exchange(on),
            })
        };
        let by_token = open.ledger.all_by_token(name).iter().copied().find(is_own);
        let by_id = open.ledger.all_by_id(name).iter().copied().find(is_own);
        let is_id =
            |call: &CallId| by_token.is_none() || self.of_call(*call, open) == Evidence::OnlyIds;
        if let Some(call) = by_id.filter(is_id) {
            return Some((call, Some(Repair::Token)));
        }
        if by_token.is_some() && open.ledger.by_id(name).is_none() {
            self.kind = Evidence::Tokens;
        }
        by_token.map(|call| (call, None))
    }

    /// Returns the call whose id is sent as the token.
    pub(crate) fn by_token_as_id(&mut self, token: &Key, open: &OpenCalls) -> Option<CallId> {
        let as_id = open.ledger.by_id(token);
        let are_ids = self.kind == Evidence::OnlyIds;
        let call = as_id.or_else(|| open.ledger.by_id_for_token(token, are_ids))?;
        // One value is enough to prefer ids, but it does not overrule a token that was seen before.
        if self.kind == Evidence::None {
            self.kind = Evidence::OnlyIds;
        }
        Some(call)
    }

    /// Learns from a late report. If no request is open and the token is exactly the id of an ended request, the server
    /// sends ids in place of tokens.
    pub(crate) fn note_late_id(&mut self, token: &Key, open: &OpenCalls) {
        // Without this, a server whose first reports all come after a cancellation stays unknown,
        // and its next late report would be guessed to be about the only open call.
        let is_late_id = || open.is_empty() && open.ledger.was_id(token).is_some();
        if self.kind == Evidence::None && is_late_id() {
            self.kind = Evidence::OnlyIds;
        }
    }

    /// Whether a token is the id of an ended request, and the server sends ids in place of tokens.
    pub(crate) fn was_id_for_token(&self, token: &Key, open: &OpenCalls) -> bool {
        self.kind == Evidence::OnlyIds
            && open.ledger.by_id(token).is_none()
            && open.ledger.was_id(token).is_some()
    }

    /// Whether a name means no open call, because an ended call had the name in any spelling, the name first came while
    /// no call was open, or an answer of the last minute contains it.
    pub(crate) fn is_of_no_call(&self, name: &Key, now: Option<Instant>, open: &OpenCalls) -> bool {
        open.ledger.was_named(name) || self.strays.contains(name, now)
    }

    /// Remembers a token that no open call can have given, because no call is open.
    pub(crate) fn note_stray(&mut self, about: &About, open: &OpenCalls) {
        if open.active(|call| &*call.method != mcp::LISTEN).next().is_none() {
            about.token.iter().chain(&about.request).for_each(|name| self.strays.add(name));
        }
    }

    /// Whether a token belongs to a call of this filter only, or to no call at all.
    pub(crate) fn knows_token(&self, token: &Key, open: &OpenCalls) -> bool {
        let ledger = &open.ledger;
        ledger.by_token(token).is_some()
            || ledger.by_id(token).is_some()
            || ledger.by_alias(token).is_some()
            || ledger.was_token(token).is_some()
            || self.elsewhere.contains(token)
    }
}
