//! Open requests, and the request that a server message is about.

pub(crate) mod call;
pub(crate) mod correlator;
pub(crate) mod draft;
pub(crate) mod given_names;
pub(crate) mod id_mapping;
pub(crate) mod ladder;
pub(crate) mod ledger;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod session_split;
pub(crate) mod signature;
pub(crate) mod stopped_clock;
pub(crate) mod strays;
pub(crate) mod tasks;
pub(crate) mod tombstones;
