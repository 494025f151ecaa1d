//! The arrangement of the streams on both sides of a filter, and what a server's stream says about its messages.

use crate::progress::policy::Policy;

/// The arrangement of a filter's streams. Depending on the arrangement, a server's stream says more or less about the
/// request that a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One client stream carries everything. `paired`: the server's streams pair with requests.
    SingleStream {
        /// See [`Topology::is_paired`].
        paired: bool,
    },
    /// Several streams of one client, some of which belong to a single request. Unless they are paired with the
    /// server's streams, they all share one connection to the server.
    ManyStreams {
        /// See [`Topology::is_paired`].
        paired: bool,
    },
    /// Several streams of clients that must not see each other's messages. The server knows each
    /// request by an id of Milepost's own.
    SharedByStrangers {
        /// See [`Topology::is_paired`].
        paired: bool,
    },
    /// The stream of one request of a session, or of several requests in one array. Another filter knows the whole
    /// session.
    RequestOfSession,
    /// The streams of a session whose requests each have a filter of their own.
    Session {
        /// Whether a request has had a stream here.
        has_requests: bool,
    },
}

impl Topology {
    /// Returns the topology of a filter that does not share a session with other filters.
    pub(crate) fn of(policy: &Policy) -> Self {
        if policy.id_mapping {
            Self::SharedByStrangers { paired: false }
        } else {
            Self::SingleStream { paired: false }
        }
    }

    /// Notes that a stream of a single request has opened.
    pub(crate) fn open_exchange(&mut self) {
        match *self {
            Self::SingleStream { paired } => *self = Self::ManyStreams { paired },
            Self::Session { .. } => *self = Self::Session { has_requests: true },
            Self::ManyStreams { .. } | Self::SharedByStrangers { .. } | Self::RequestOfSession => {}
        }
    }

    /// Notes that from now on the server's streams pair with requests. The filters of a session do not pair, because
    /// each of their server streams is also a client stream.
    pub(crate) fn pair(&mut self) {
        match self {
            Self::SingleStream { paired }
            | Self::ManyStreams { paired }
            | Self::SharedByStrangers { paired } => *paired = true,
            Self::RequestOfSession | Self::Session { .. } => {}
        }
    }

    /// Whether no other filter knows requests of the same session.
    pub(crate) fn is_whole(self) -> bool {
        !matches!(self, Self::RequestOfSession | Self::Session { .. })
    }

    /// Whether the filter knows the requests of a session as shadows, while other filters send the progress of these
    /// requests.
    pub(crate) fn keeps_shadows(self) -> bool {
        matches!(self, Self::Session { .. })
    }

    /// Whether messages on one stream of the server may belong to different client streams.
    pub(crate) fn has_many_streams(self) -> bool {
        !matches!(self, Self::SingleStream { .. } | Self::Session { has_requests: false })
    }

    /// Whether the server's streams are paired with requests, and are not client streams themselves.
    pub(crate) fn is_paired(self) -> bool {
        matches!(
            self,
            Self::SingleStream { paired: true }
                | Self::ManyStreams { paired: true }
                | Self::SharedByStrangers { paired: true }
        )
    }

    /// Whether different clients share the server. A message whose owner is uncertain then goes to no client.
    pub(crate) fn has_strangers(self) -> bool {
        matches!(self, Self::SharedByStrangers { .. })
    }

    /// Whether the requests of several client streams reach the server on one connection, so that only an answer's id
    /// shows which stream it belongs to.
    pub(crate) fn finds_answers_by_id(self) -> bool {
        matches!(self, Self::ManyStreams { .. })
    }

    /// Whether every message goes to the only client stream.
    pub(crate) fn needs_no_choice(self) -> bool {
        !self.has_many_streams() && !self.is_paired()
    }
}
