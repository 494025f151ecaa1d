//! The limit of open descriptors: raised for this process, and not for its servers.

use std::io;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// The soft limit before it was raised.
static SOFT_BEFORE: OnceLock<rlim_t> = OnceLock::new();

/// Raises the soft limit of this process to the hard one. Starters restore it for servers.
pub(super) fn raise() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        let _ = SOFT_BEFORE.set(soft);
    }
    Ok(())
}

/// The number of descriptors that this process may have open.
///
/// # Errors
/// If the system does not tell.
pub fn descriptor_limit() -> io::Result<u64> {
    Ok(getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, _)| soft)?)
}

/// The soft limit that servers get; `None`: that of this process.
pub(super) fn limit_of_servers() -> Option<rlim_t> {
    SOFT_BEFORE.get().copied()
}

/// Lowers the soft limit of this process, which is about to become a server.
pub(super) fn lower(soft: rlim_t) {
    let hard = getrlimit(Resource::RLIMIT_NOFILE).map(|(_, hard)| hard);
    let _ = hard.and_then(|hard| setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard));
}
