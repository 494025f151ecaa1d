//! Which requests are open, and which of them a message of the server is about.

pub(crate) mod call;
pub(crate) mod correlator;
pub(crate) mod id_mapping;
pub(crate) mod ladder;
pub(crate) mod ledger;
pub(crate) mod place;
pub(crate) mod session_split;
pub(crate) mod summary;
pub(crate) mod tasks;
