//! The mapping of ids: the server gets a request with an id and a token that Milepost has chosen, and every message
//! about the request gets the client's own id and token back. If different clients share one server, every request is
//! mapped. Otherwise only a request is mapped whose id or token the server already knows from another open request.
//!
//! Only ids and tokens are replaced; every other byte is unchanged. If clients share a server, a message that cannot be
//! mapped is not sent to the server, because its id could mean another client's request there.

use std::ops::Range;

use bytes::Bytes;

use crate::progress::correlate::call::Call;
use crate::progress::dialect::report::{About, Report};
use crate::progress::ids::MappedId;
use crate::progress::payload::{Payload, spliced, within};
use crate::progress::topology::Topology;
use crate::protocol::jsonrpc::{Key, Message};
use crate::protocol::{json, mcp};

/// Whether the server knows a call, or its token, by another name than the client.
fn translates(call: &Call, topology: Topology) -> bool {
    topology.has_strangers()
        || call.id.translated
        || call.token.as_ref().is_some_and(|token| token.translated)
}

/// Returns a server message about `call` for its client: the same bytes, except for names given by Milepost.
pub(crate) fn with_client_names(
    call: &Call,
    message: &Message,
    about: &About,
    topology: Topology,
) -> Payload {
    if translates(call, topology) { restored(call, message, about) } else { Payload::of(message) }
}

/// Returns a report in the form for its client; `None` if the report needs a repair.
pub(crate) fn for_client(
    call: &Call,
    message: &Message,
    report: &Report,
    topology: Topology,
) -> Option<Payload> {
    let about = &report.about;
    let replaceable = !translates(call, topology)
        || about.token_text.as_ref().is_some_and(|text| within(message.raw(), text).is_some());
    (report.repairs.is_empty() && replaceable)
        .then(|| with_client_names(call, message, about, topology))
}

/// Returns the places where an answer names its call, each with the client's name for the call.
pub(crate) fn restored_names(
    call: &Call,
    message: &Message,
    topology: Topology,
) -> Vec<(Range<usize>, Bytes)> {
    let name = &call.id;
    let mut places: Vec<_> = message.id_range().into_iter().collect();
    // The final result of a subscription repeats the id in `_meta` (MCP 2026-07-28).
    if topology.has_strangers() && call.is_subscription() {
        let meta = message.result().and_then(|result| json::member(&result, "_meta"));
        let again = meta.and_then(|meta| json::member(&meta, mcp::META_SUBSCRIPTION));
        let ours = again.filter(|again| {
            Key::read(again).is_some_and(|key| key == name.server || key.respelled(&name.server))
        });
        places.extend(ours.and_then(|ours| within(message.raw(), &ours)));
    }
    places.into_iter().map(|place| (place, name.client.clone())).collect()
}

/// Returns a message with the client's names in place of Milepost's.
fn restored(call: &Call, message: &Message, about: &About) -> Payload {
    let is_meant = |token: &&MappedId| {
        about.token.as_ref().is_some_and(|key| *key == token.server || key.respelled(&token.server))
    };
    // Only names of this call are replaced. Any other text in these members is the server's own.
    let token = call.token.as_ref().filter(is_meant);
    let token = about.token_text.as_ref().zip(token);
    let id = Some(&call.id).filter(|id| about.request.as_ref() == Some(&id.server));
    let id = about.request_text.as_ref().zip(id);
    let named = [token, id].into_iter().flatten();
    let splices = named
        .filter_map(|(text, name)| Some((within(message.raw(), text)?, name.client.clone())))
        .collect();
    spliced(message, splices)
}
