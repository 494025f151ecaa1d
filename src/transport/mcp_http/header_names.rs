//! Names of the headers that MCP adds to HTTP.

use http::HeaderName;

/// The header that names a session.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The header that names the agreed protocol revision.
pub(crate) const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The header in which a client names the last event that it has received.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
