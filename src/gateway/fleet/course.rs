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

/// Decides where a request is served whose session belongs to `owner`. `me` is this process, `passed_on` whether
/// another replica has passed the request on. `is_down` tells whether the replica at an address could not be reached a
/// short time ago.
pub fn course(
    owner: Owner,
    me: Owner,
    passed_on: bool,
    is_down: impl FnOnce(SocketAddr) -> bool,
) -> Course {
    if owner == me {
        Course::Here
    } else if owner.address == me.address {
        // An earlier process had this address, and the session ended with that process.
        Course::Gone
    } else if passed_on {
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
        assert_eq!(course(me, me, false, |_| true), Course::Here);
        assert_eq!(course(me, me, true, |_| true), Course::Here);
        assert_eq!(course(other, me, false, |_| false), Course::Elsewhere(other.address));
        assert_eq!(course(other, me, false, |_| true), Course::Gone);
        assert_eq!(course(other, me, true, |_| false), Course::Loop);
        assert_eq!(course(owner(1, 6), me, false, |_| false), Course::Gone, "it started anew");
        assert_eq!(course(owner(1, 6), me, true, |_| false), Course::Gone);
    }
}
