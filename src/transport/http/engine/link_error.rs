//! Why a request on a connection has no response, or no whole one.

use std::io;

use super::malformed::MalformedResponse;
use crate::transport::http::request_body::RequestBodyError;

/// The reason why a request fails. Its connection is closed.
pub(crate) enum LinkError {
    /// The connection fails.
    Io(io::Error),
    /// The response is malformed.
    Malformed(MalformedResponse),
    /// The body of the request cannot be read.
    RequestBody(RequestBodyError),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<MalformedResponse> for LinkError {
    fn from(malformed: MalformedResponse) -> Self {
        Self::Malformed(malformed)
    }
}
