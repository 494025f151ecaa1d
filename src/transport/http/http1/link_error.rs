//! Why a request on a connection has no response, or an incomplete response.

use std::io;

use super::malformed::MalformedResponse;
use crate::transport::http::request_body::RequestBodyError;

/// The reason why a request fails. Its connection is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The connection fails.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The response is malformed.
    #[error(transparent)]
    Malformed(#[from] MalformedResponse),
    /// The body of the request cannot be read.
    #[error(transparent)]
    RequestBody(RequestBodyError),
}
