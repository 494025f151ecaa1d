//! The names of a call: its id and its token, in any spelling.

use bytes::Bytes;
use serde_json::Value;

use crate::protocol::jsonrpc::Key;

/// Whether a value is this id of a call, in any spelling.
pub(super) fn is_id_of(id: u64, value: &Value) -> bool {
    let id = i64::try_from(id).ok().map(Key::Integer);
    matches(id.as_ref(), key_of(value).as_ref())
}

/// A value as a name of a call.
pub(super) fn key_of(value: &Value) -> Option<Key> {
    Key::read(&Bytes::from(value.to_string()))
}

/// Whether two names are equal, in any spelling.
pub(super) fn matches(known: Option<&Key>, said: Option<&Key>) -> bool {
    match (known, said) {
        (Some(known), Some(said)) => known == said || known.respelled(said),
        _ => false,
    }
}
