//! A client's POST on its way to the server, and the sender for messages of Milepost itself about it.

use http::request::Parts;
use http::{HeaderValue, Request, Uri};

use super::control::{ControlSender, ControlledServer};
use super::post::Post;
use crate::gateway::observers::Observers;
use crate::transport::http::request_body::RequestBody;

impl Post {
    /// Returns the request for the server, and the sender for messages of Milepost itself about it. `is_seen`:
    /// operators see its calls.
    pub(crate) fn request(
        &self,
        (address, parts, body): ((&HeaderValue, Uri), Parts, RequestBody),
        observers: Option<&Observers>,
    ) -> (Request<RequestBody>, Option<ControlSender>) {
        let state = &self.direct.state;
        if !ControlSender::is_needed(self.policy(), observers) {
            return (state.forwarder.request(address, parts, body), None);
        }
        let request = state.forwarder.copied_request(address, &parts, body);
        let server: ControlledServer = |state| state.endpoint.as_ref();
        let control = ControlSender::new(state, (server, request.uri()), parts);
        (request, Some(control))
    }
}
