//! The service manager. On Windows it needs no reports.

/// Does nothing: Windows does not need to know whether this process is ready.
pub fn notify_ready() {}

/// Does nothing: Windows does not need to know about reloads.
pub fn notify_reloading() {}

/// Does nothing: Windows does not need to know whether this process is stopping.
pub fn notify_stopping() {}
