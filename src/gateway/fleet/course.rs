//! Decides where a request of a session is served. The decision is a pure function.

use std::net::SocketAddr;

use super::seal::Owner;

/// Where a request of a session is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// Here: this process owns the session.
    Here,
    /// At the replica with this address, which owns the session.
    Elsewhere(SocketAddr),
    /// The process that owned the session has ended, or cannot be reached.
    Gone,
    /// Another replica passed the request on, but the session is not here either. The request must not be passed on
    /// again.
    Loop,
}

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSender {
    /// The client of the session.
    Client,
    /// Another replica, which has passed the request on.
    Replica,
}

/// Decides where a request is served whose session belongs to `owner`. `me`: this process. `is_down`: returns
/// whether the replica at an address was unreachable a short time ago.
pub fn course(
    owner: Owner,
    me: Owner,
    sender: RequestSender,
    is_down: impl FnOnce(SocketAddr) -> bool,
) -> Course {
    if owner == me {
        Course::Here
    } else if owner.address == me.address {
        // An earlier process had this address, and the session ended with that process.
        Course::Gone
    } else if sender == RequestSender::Replica {
        Course::Loop
    } else if is_down(owner.address) {
        Course::Gone
    } else {
        Course::Elsewhere(owner.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_to_the_owner_once_and_stays_if_that_one_is_gone() {
        let owner = |port, boot| Owner { address: SocketAddr::from(([10, 0, 0, 1], port)), boot };
        let me = owner(1, 7);
        let other = owner(2, 9);
        assert_eq!(course(me, me, RequestSender::Client, |_| true), Course::Here);
        assert_eq!(course(me, me, RequestSender::Replica, |_| true), Course::Here);
        assert_eq!(
            course(other, me, RequestSender::Client, |_| false),
            Course::Elsewhere(other.address)
        );
        assert_eq!(course(other, me, RequestSender::Client, |_| true), Course::Gone);
        assert_eq!(course(other, me, RequestSender::Replica, |_| false), Course::Loop);
        assert_eq!(
            course(owner(1, 6), me, RequestSender::Client, |_| false),
            Course::Gone,
            "it started anew"
        );
        assert_eq!(course(owner(1, 6), me, RequestSender::Replica, |_| false), Course::Gone);
    }
}
