//! The service manager: systemd, if `NOTIFY_SOCKET` is set.

use sd_notify::{NotifyState, notify};

/// Reports that this process is ready.
pub fn notify_ready() {
    // Ignore errors here and below: without systemd there is no service manager to notify.
    let _ = notify(&[NotifyState::Ready]);
}

/// Reports that this process reads its settings again. [`notify_ready`] must follow.
pub fn notify_reloading() {
    let now = NotifyState::monotonic_usec_now();
    let now = now.unwrap_or(NotifyState::MonotonicUsec(0));
    let _ = notify(&[NotifyState::Reloading, now]);
}

/// Reports that this process is stopping.
pub fn notify_stopping() {
    let _ = notify(&[NotifyState::Stopping]);
}
