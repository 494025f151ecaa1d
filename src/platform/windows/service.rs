//! The service manager: on Windows it needs no messages.

/// Does nothing: no service manager of Windows asks whether this process serves.
pub fn notify_ready() {}

/// Does nothing: no service manager of Windows asks for reloads.
pub fn notify_reloading() {}

/// Does nothing: no service manager of Windows asks whether this process stops.
pub fn notify_stopping() {}
