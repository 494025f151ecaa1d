//! What a client is told about tasks: the capability in the answer to `initialize`, together with a protocol revision
//! that has tasks, and the tools whose calls may run as tasks.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::progress::durations::Expected;
use crate::progress::gate::state::Gate;
use crate::progress::ids::CallId;
use crate::progress::payload::within;
use crate::progress::policy::tasks::{TaskOffer, Tasks};
use crate::progress::policy::{CallPolicy, Mode, Policy};
use crate::protocol::jsonrpc::Message;
use crate::protocol::mcp::Revision;
use crate::protocol::{json, mcp};

/// The server capability for tool calls that run as tasks and can be cancelled. Listing tasks is not offered, because
/// each task has only one client, and that client knows the task's id.
const CAPABILITY: &str = r#""tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}"#;

/// The member that marks a tool whose calls may run as tasks.
const EXECUTION: &str = r#""execution":{"taskSupport":"optional"}"#;
const SUPPORT: &str = r#""taskSupport":"optional""#;

impl CallPolicy {
    /// Returns the settings of tasks, if calls may run as tasks.
    pub fn task_settings(&self) -> Option<&Tasks> {
        let tasks = &self.tasks;
        let may = tasks.enabled && tasks.offer != TaskOffer::Never && self.mode == Mode::Full;
        may.then_some(tasks)
    }
}

impl Policy {
    /// Whether calls of any tool may run as Milepost's own tasks.
    pub fn has_tasks(&self) -> bool {
        self.everywhere().any(|policy| policy.task_settings().is_some())
    }

    /// Whether clients are told that the calls of a tool may run as tasks.
    fn offers_task(&self, tool: &str) -> bool {
        let Some(tasks) = self.of(Some(tool)).task_settings() else { return false };
        let usual = || match self.learned.usual(tool)?.expected(Duration::ZERO) {
            Expected::About(usual, _) | Expected::Longer(usual) => Some(usual),
        };
        tasks.offer == TaskOffer::Always || usual().is_some_and(|usual| usual >= tasks.after)
    }
}

/// What was agreed with the client about tasks.
#[derive(Debug, Default)]
pub(crate) struct TaskOffers {
    /// Whether the client has asked for the revision that has tasks in this form.
    is_wanted: bool,
    /// Whether the client was told that calls may be tasks.
    pub(crate) is_offered: bool,
    /// Whether the client was told a newer revision than the server supports.
    pub(crate) is_lifted: bool,
}

impl TaskOffers {
    /// Learns from `initialize` whether the client knows tasks.
    pub(crate) fn note_client(&mut self, gate: &Gate, params: &Bytes) {
        let date = json::member(params, "protocolVersion");
        let date = date.as_ref().and_then(|date| json::decode_str(date));
        // A task belongs to one connection. The filter of a single request, or of clients that share a server, could
        // not find the task of a later request, so it offers none.
        self.is_wanted = date.as_deref() == Some(Revision::V2025_11_25.date())
            && gate.calls.policy.has_tasks()
            && gate.calls.streams.topology.is_whole()
            && !gate.calls.streams.topology.has_strangers();
        (self.is_offered, self.is_lifted) = (false, false);
    }

    /// Returns the changes to an answer that inform the client about tasks.
    pub(crate) fn changes(
        &mut self,
        gate: &Gate,
        id: CallId,
        message: &Message,
    ) -> Vec<(Range<usize>, Bytes)> {
        if !self.is_wanted {
            return Vec::new();
        }
        let Some(call) = gate.calls.open.get(id) else { return Vec::new() };
        let Some(result) = message.result() else { return Vec::new() };
        match &*call.method {
            mcp::INITIALIZE => self.declare(message.raw(), &result).unwrap_or_default(),
            mcp::TOOLS_LIST if self.is_offered => {
                mark_tools(&gate.calls.policy, message.raw(), &result).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Declares the capability in an answer to `initialize`, unless the server has tasks itself or has no tools.
    fn declare(&mut self, raw: &Bytes, result: &Bytes) -> Option<Vec<(Range<usize>, Bytes)>> {
        let capabilities = json::member(result, "capabilities")?;
        let date = json::member(result, "protocolVersion")?;
        let revision = Revision::from_date(&json::decode_str(&date)?)?;
        let has = |name| json::member(&capabilities, name).is_some();
        if has("tasks") || !has("tools") || revision > Revision::V2025_11_25 {
            return None;
        }
        let mut splices = vec![first_member(raw, &capabilities, CAPABILITY)?];
        // The client uses tasks only if the negotiated revision has them.
        if revision < Revision::V2025_11_25 {
            let newer = json::quote(Revision::V2025_11_25.date());
            splices.push((within(raw, &date)?, newer));
            self.is_lifted = true;
        }
        self.is_offered = true;
        Some(splices)
    }
}

/// Marks the tools whose calls may run as tasks. A member that the server has set itself stays.
fn mark_tools(policy: &Policy, raw: &Bytes, result: &Bytes) -> Option<Vec<(Range<usize>, Bytes)>> {
    let tools = json::member(result, "tools")?;
    let (places, _) = json::elements(&tools)?;
    let marked = places.into_iter().filter_map(|place| {
        let tool = tools.slice(place);
        let name = json::member(&tool, "name")?;
        if !policy.offers_task(&json::decode_str(&name)?) {
            return None;
        }
        match json::member(&tool, "execution") {
            None => first_member(raw, &tool, EXECUTION),
            Some(execution) if json::member(&execution, "taskSupport").is_none() => {
                first_member(raw, &execution, SUPPORT)
            }
            Some(_) => None,
        }
    });
    Some(marked.collect())
}

/// Inserts a member before the other members of `object`, a part of `raw`. `None` if `object` is not an object.
pub(crate) fn first_member(
    raw: &Bytes,
    object: &Bytes,
    member: &str,
) -> Option<(Range<usize>, Bytes)> {
    let mut members = json::Members::new(object);
    let is_empty = members.by_ref().next().is_none();
    let place = within(raw, object).filter(|_| object.starts_with(b"{"))?;
    let comma = if is_empty { "" } else { "," };
    Some((place.start + 1..place.start + 1, Bytes::from(format!("{member}{comma}"))))
}
