//! The limit of open descriptors, which is raised for this process but not for its servers.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Maximum number of descriptors that are reserved for operators: for connections to the admin address and to the local
/// socket, and for the files that these read.
const RESERVED_MAX: rlim_t = 32;

/// If the limit is low, only one of this many descriptors is reserved.
const RESERVED_ONE_OF: rlim_t = 8;

/// The soft limit before [`raise`].
static SOFT_BEFORE: OnceLock<rlim_t> = OnceLock::new();

/// Raises the soft limit of this process to the hard limit. Starters restore the soft limit for servers.
pub(super) fn raise() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        let _ = SOFT_BEFORE.set(soft);
    }
    Ok(())
}

/// Returns the limit of open descriptors of this process.
///
/// # Errors
/// If the system does not report the limit.
pub fn descriptor_limit() -> io::Result<u64> {
    Ok(getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, _)| soft)?)
}

/// Returns the soft limit for servers; `None` if it is the same as that of this process.
pub(super) fn limit_of_servers() -> Option<rlim_t> {
    SOFT_BEFORE.get().copied()
}

/// Lowers the soft limit of this process, which is about to become a server.
pub(super) fn lower(soft: rlim_t) {
    let hard = getrlimit(Resource::RLIMIT_NOFILE).map(|(_, hard)| hard);
    let _ = hard.and_then(|hard| setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard));
}

/// Whether a descriptor that was just opened is one of those that are reserved for operators.
///
/// The system gives the lowest free number. So a reserved number means that all others are in use, for whatever
/// purpose: connections, children, files, libraries.
pub fn is_reserved(opened: &impl AsFd) -> bool {
    let Ok(limit) = descriptor_limit() else { return false };
    let number = opened.as_fd().as_raw_fd();
    u64::try_from(number).is_ok_and(|number| number >= limit - reserved(limit))
}

/// Checks that a descriptor is free that is not reserved for operators.
///
/// # Errors
/// If none is free: the system's error for a process at its limit of open descriptors (`EMFILE`).
pub fn check_reserve() -> io::Result<()> {
    match File::open("/dev/null") {
        Ok(opened) if is_reserved(&opened) => Err(Errno::EMFILE.into()),
        Err(error) if is_of_this_machine(&error) => Err(error),
        // `/dev/null` cannot be opened for a reason that has nothing to do with the limit.
        _ => Ok(()),
    }
}

/// Whether an error of the system is caused by this machine or process, not by the other side: no descriptor, memory,
/// port or network is left.
pub fn is_of_this_machine(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, NetworkDown, NetworkUnreachable, OutOfMemory};
    let of_process = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS];
    matches!(error.kind(), AddrNotAvailable | NetworkDown | NetworkUnreachable | OutOfMemory)
        || error.raw_os_error().is_some_and(|code| of_process.contains(&Errno::from_raw(code)))
}

fn reserved(limit: rlim_t) -> rlim_t {
    (limit / RESERVED_ONE_OF).min(RESERVED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_descriptors_is_reserved_up_to_a_limit() {
        assert_eq!([0, 7, 64, 200, 1024, rlim_t::MAX].map(reserved), [0, 0, 8, 25, 32, 32]);
        check_reserve().unwrap();
        assert!(!is_reserved(&io::stderr()));
    }

    #[test]
    fn a_refused_connection_is_the_fault_of_the_other_side() {
        let of = |code: Errno| is_of_this_machine(&io::Error::from(code));
        for own in
            [Errno::EMFILE, Errno::ENFILE, Errno::ENETDOWN, Errno::ENETUNREACH, Errno::ENOBUFS]
        {
            assert!(of(own), "{own}");
        }
        for other in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ETIMEDOUT, Errno::ECONNRESET]
        {
            assert!(!of(other), "{other}");
        }
    }
}
