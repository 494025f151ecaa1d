//! The service manager: systemd, where `NOTIFY_SOCKET` is set.

use sd_notify::{NotifyState, notify};

/// Says that this process serves.
pub fn notify_ready() {
    // Ignore errors here and below: without systemd there is no service manager to notify.
    let _ = notify(&[NotifyState::Ready]);
}

/// Says that this process reads its settings again; [`notify_ready`] is to follow.
pub fn notify_reloading() {
    let now = NotifyState::monotonic_usec_now();
    let now = now.unwrap_or(NotifyState::MonotonicUsec(0));
    let _ = notify(&[NotifyState::Reloading, now]);
}

/// Says that this process stops.
pub fn notify_stopping() {
    let _ = notify(&[NotifyState::Stopping]);
}
