//! Open requests, and the request that a server message is about.

pub(crate) mod ask_for_logs;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod correlator;
pub(crate) mod draft;
pub(crate) mod given_names;
pub(crate) mod id_mapping;
pub(crate) mod ladder;
pub(crate) mod ledger;
pub(crate) mod mended_body;
pub(crate) mod meter;
pub(crate) mod orphans;
pub(crate) mod outgoing;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod policies;
pub(crate) mod readable;
pub(crate) mod repaired_answer;
pub(crate) mod session_split;
pub(crate) mod signature;
pub(crate) mod stopped_clock;
pub(crate) mod strays;
pub(crate) mod tasks;
pub(crate) mod tombstones;
