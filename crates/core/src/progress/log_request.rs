//! The state of Milepost's own request for log messages, `logging/setLevel`.

/// The state of the request by which Milepost asks a server for log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LogRequest {
    /// The server has not announced log messages.
    #[default]
    Unknown,
    /// The server has announced log messages, but no request was sent yet.
    Possible,
    /// The request was sent and has no answer yet.
    Pending,
    /// The request was answered, or the client has sent such a request itself, so Milepost sends none.
    Done,
}
