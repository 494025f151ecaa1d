//! The event stream that answers a POST.

use super::event_stream::{EventStream, Silence};
use super::exchange::Exchange;
use super::post::Post;
use super::response::{PostUpstream, UpstreamAnswer};
use super::stream_body;
use crate::gateway::route_state::StreamPermit;
use crate::transport::http::body::Body;

impl Post {
    /// The stream of an answer.
    pub(super) fn stream(
        self: Box<Self>,
        exchange: Box<Exchange>,
        answer: UpstreamAnswer,
        permit: StreamPermit,
    ) -> Body {
        stream_body::of_call(self.event_stream(exchange, answer), permit)
    }

    /// The same, with a comment first: the client sees at once that the response has begun.
    pub(super) fn greeting_stream(
        self: Box<Self>,
        exchange: Box<Exchange>,
        answer: UpstreamAnswer,
        permit: StreamPermit,
    ) -> Body {
        let mut stream = self.event_stream(exchange, answer);
        stream.send_comment_first();
        stream_body::of_call(stream, permit)
    }

    fn event_stream(
        self: Box<Self>,
        exchange: Box<Exchange>,
        answer: UpstreamAnswer,
    ) -> EventStream<Exchange, PostUpstream> {
        // A server that answers on another stream says nothing here.
        let is_elsewhere = matches!(answer, UpstreamAnswer::Elsewhere);
        let silence = Silence {
            keep_alive: self.direct.state.route.keep_alive,
            idle: self.direct.state.route.idle_timeout.filter(|_| !is_elsewhere),
        };
        let write_state = self.write_state.clone();
        // The headers of the answer have been read, so its POST is no longer needed.
        let has_begun = matches!(answer, UpstreamAnswer::Events(_) | UpstreamAnswer::Elsewhere);
        let post = (!has_begun).then_some(self);
        let upstream = PostUpstream { answer, post };
        EventStream::new(*exchange, upstream, silence, write_state)
    }
}
