//! The service manager: Windows has one that asks for nothing here.

/// Says that this process serves: nobody asks on Windows.
pub fn notify_ready() {}

/// Says that this process reads its settings again: nobody asks on Windows.
pub fn notify_reloading() {}

/// Says that this process stops: nobody asks on Windows.
pub fn notify_stopping() {}
