//! Decides whether several objects on one line are separated.

use crate::progress::correlate::correlator::Correlator;
use crate::protocol::jsonrpc::Message;

/// Whether the objects of an opaque message, which are on one line, are separated, because they may go to different
/// streams or because no client can parse the line.
pub(crate) fn is_split(calls: &Correlator, message: &Message) -> bool {
    // If clients share the server, a text that can be read in two ways is never split on a guess.
    let may_differ =
        calls.streams.topology.has_many_streams() && message.elements().nth(1).is_some();
    may_differ
        || !calls.streams.topology.has_strangers()
            && calls.policy.call.answers.split_line
            && !calls.policy.call.observes()
            && message.on_one_line().is_some()
}
