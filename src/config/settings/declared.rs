//! The declarations of the settings of listeners, servers and connections: the key of each, what it does, the kind of
//! its values, the field that it sets, and its default as text if that is no value. The settings of progress are in
//! `crates/core/src/policy_file`.
//!
//! To add a setting, add it to its type with its default, declare it here, and write its row in `proxy.toml`;
//! everything else is generated from the declaration.

use milepost_core::settings;

use super::format::{Maybe, Strings, TypedTable};
use super::places::{CommandEnv, FilePath, Inherited, StateFolder};
use crate::config::routes::FrontHeader;
use crate::config::routes::route::{
    Admin, Cors, ForwardedRule, Route, Server, ServerTls, StateSettings, StdioUpstream, Upstream,
};
use crate::config::values::principal_header::PrincipalHeader;
use crate::config::values::text::{
    Address, AtLeast, Hidden, HostText, NetText, OriginText, PublicUrl,
};
use crate::policy_file::format::{List, Switch};
use crate::policy_file::text::{AnyTime, OneOf, Period, TimeOrOff};

settings! { #[cfg(test)] Server, Self::default();
    /// The address that clients connect to.
    "listen" Address => listen {}
    /// Accepted host names besides those of the listener and of loopback. An address that other machines
    /// can reach needs at least one.
    "allowed_hosts" List<HostText> => allowed_hosts {}
    /// Accepted origins of browsers besides those of loopback.
    "allowed_origins" List<OriginText> => allowed_origins {}
    /// Addresses and nets (CIDR) of fronts, such as "10.0.0.0/8". Their headers about their clients are trusted
    /// (forwarded), and they do not count as clients themselves.
    "trusted_proxies" List<NetText> => trusted_proxies {}
    /// The header in which trusted_proxies name their clients. With x-forwarded-for or forwarded, the other header is
    /// removed.
    "front_header" OneOf<FrontHeader> => front_header {}
    /// The header in which trusted_proxies name the user of a request, such as "header:x-user". The user is then the
    /// client of limits, sessions and shared children. From other senders the header is removed.
    "principal" Maybe<PrincipalHeader> => principal { default: "none" }
    /// Refuses requests of pages of other sites that have no accepted origin, and POSTs of pages whose
    /// body has a type that a form can send. Browsers mark such requests with `Sec-Fetch-Site`.
    "check_pages" Switch => check_pages {}
    /// Accepts every host name: any web page that a user of this network opens can then reach the routes.
    "insecure" Switch => insecure {}
    /// The URL of the listener for clients behind a front that rewrites paths. The path of each route
    /// follows this URL. The `endpoint` of HTTP+SSE and the metadata of a sign-in then name it.
    "public_url" Maybe<PublicUrl> => public_url { default: "the address that the client uses" }
    /// The certificate and key of the listener.
    "tls" Maybe<TypedTable<ServerTls>> => tls { default: "none, it speaks plain HTTP" }
    /// PEM file with certificate authorities: each client must present a certificate that one of them has signed. Needs
    /// `tls`. The name in the certificate (its first URI, else its first DNS name, else its common name) identifies the
    /// client: only clients with the same name share a child.
    "client_ca_file" Maybe<FilePath> => client_ca_file { default: "none, clients present no certificate" }
    /// The token that clients present as `Authorization: Bearer`.
    "bearer" Maybe<Hidden> => bearer { default: "nothing" }
    /// The time after SIGTERM in which /readyz reports that the listener is not ready, while everything is still
    /// served, so that load balancers send new requests elsewhere before the listener closes. With `[fleet]` a client
    /// that begins a session then gets 503 with Retry-After. SIGINT or a second signal skips this time.
    "linger" AnyTime => linger {}
    /// The time that open calls have to end after SIGTERM and `linger`.
    "drain" AnyTime => drain {}
    /// The largest number of open client connections; a further connection gets 503. At most three quarters
    /// of the descriptors that the system allows; the rest is for children, servers and operators.
    "max_connections" AtLeast<1> => max_connections {}
    /// The time without a request after which an HTTP/1.1 connection closes. Load balancers should close theirs first.
    "http1_idle_timeout" TimeOrOff => http1_idle_timeout {}
    /// The time without an open stream after which an HTTP/2 connection of a client is closed.
    "http2_idle_timeout" TimeOrOff => http2_idle_timeout {}
    /// The largest number of open connections of one address (for IPv6, of its first 64 bits); a further connection
    /// gets 429. 0 means no limit. Loopback and trusted_proxies are not limited.
    "max_client_connections" AtLeast<0> => clients.connections {}
    /// The largest number of open streams of one client: the name in its certificate or of `principal`, else its
    /// address, or the address that one of trusted_proxies names. The streams of one `Authorization` have the same
    /// limit, also over loopback. A further stream gets 429. 0 means no limit.
    "max_client_streams" AtLeast<0> => clients.streams {}
    /// The largest number of sessions that Milepost keeps for one client, on routes to servers of another transport; a
    /// further session gets 429. 0 means no limit.
    "max_client_sessions" AtLeast<0> => clients.sessions {}
    /// The largest number of children that run for one client; a further child gets 429. A shared child counts for the
    /// client whose request started it. 0 means no limit.
    "max_client_children" AtLeast<0> => clients.children {}
    /// The largest number of children that start for one client in a minute. A further start gets 429 for a second,
    /// then for two, and up to a minute if the client goes on starting. 0 means no limit.
    "max_client_child_starts" AtLeast<0> => clients.child_starts {}
    /// Raises the soft limit of descriptors of `serve` to the hard one at the start, on Linux. Children keep the former
    /// soft limit.
    "raise_descriptors" Switch => raise_descriptors {}
    /// The largest head of a request, in bytes; a longer head gets 431.
    "max_header_bytes" AtLeast<8192> => max_header_bytes {}
    /// The largest number of bytes of all incomplete request bodies together, in memory and in files; a request beyond
    /// it gets 503.
    "max_unread_bytes" AtLeast<65536> => max_unread_bytes {}
    /// The largest number of bytes of all large answers of shared children and HTTP+SSE servers together in temporary
    /// files; the caller of an answer beyond it gets an error.
    "max_spilled_bytes" AtLeast<1048576> => max_spilled_bytes {}
    /// The largest number of bytes of all messages together that wait in memory: bodies of requests for their servers,
    /// answers of late calls and of tasks for their clients, and messages that streams of sessions keep for clients
    /// that reconnect, taken or not. One client may use at most a quarter. A request beyond the limit gets 503, or 429
    /// if its own client uses too much; an answer beyond it is sent to a client that is connected, but is not kept.
    "max_kept_bytes" AtLeast<1048576> => max_kept_bytes {}
}

settings! { #[cfg(test)] Admin, Self::default();
    /// The address.
    "listen" Maybe<Address> => listen {}
    /// The token that operators present as `Authorization: Bearer` for all paths except /, /livez and /readyz.
    "bearer" Maybe<Hidden> => bearer {
        default: "the token that Milepost makes; /metrics then needs no token, and answers over loopback only"
    }
    /// Makes a token at startup if there is no `bearer`: the file `admin-token` in the folder of `[state]`, which only
    /// this user can read. /calls, /tap and /log-level need the token; `milepost tap` finds the file itself. With
    /// false, or if no file can be made, these paths answer over loopback to every user of the machine.
    "make_token" Switch => make_token {}
}

mod fleet;
mod http_upstream;

settings! { #[cfg(test)] StateSettings, Self::default();
    /// The folder, relative to this file, or "off".
    "dir" Maybe<StateFolder> => dir {
        default: "$XDG_STATE_HOME/milepost or ~/.local/state/milepost"
    }
}

settings! { #[cfg(test)] StdioUpstream, Self::new(Vec::new());
    /// Additional variables of the command's environment.
    "env" CommandEnv => env {}
    /// The variables of Milepost's environment that the command inherits under `serve`: "all", except for
    /// `NOTIFY_SOCKET` and those that this file uses in `bearer`, `key` and `headers` or in `env` of another
    /// route; "safe", which are HOME, LANG, LC_*, LOGNAME, PATH, SHELL, SSL_CERT_*, TERM, TMPDIR, TZ, USER,
    /// XDG_* and *_PROXY; or a list of names. With `wrap` the command inherits all.
    "inherit_env" Inherited => inherit_env {}
    /// The working folder of the command, relative to this file.
    "cwd" Maybe<FilePath> => cwd { default: "that of milepost" }
    /// Clients of 2026-07-28, which have no sessions, share one child per `Authorization`. If false, they are refused.
    "share" Switch => share {}
    /// The largest number of running children; a further session gets 503.
    "max_children" AtLeast<1> => max_children {}
    /// Maximum number of open calls on a shared child. Each client with open calls has the same share, and a call
    /// beyond its share gets 429. Clients are counted as for max_client_streams. 0 means no limit.
    "max_shared_calls" AtLeast<0> => max_shared_calls {}
    /// The longest time from the start of a child to its first answer.
    "start_timeout" Period => start_timeout { default: "\"60s\"" }
    /// The time without use after which a session or a shared child ends.
    "idle_timeout" TimeOrOff => idle_timeout {}
    /// A session ends after this time if its client has closed its GET stream and has sent no request since. An open
    /// call, a task, and an answer that is kept for the client keep the session for idle_timeout.
    "abandoned_timeout" TimeOrOff => abandoned_timeout {}
    /// A dead shared child is started again, after a growing pause; otherwise its clients get errors.
    "restart" Switch => restart {}
    /// The longest message of a shared child that is held in memory, in bytes; a longer message goes to a
    /// temporary file.
    "max_frame" AtLeast<65536> => max_frame {}
    /// The longest message of a shared child that goes to such a file, in bytes; for a longer message its
    /// caller gets an error.
    "max_spill" AtLeast<0> => max_spill {}
}

settings! { #[cfg(test)] Route, Self::new("/".to_owned(), Upstream::Demo);
    /// The longest time of connecting to the upstream.
    "connect_timeout" Period => connect_timeout {}
    /// The longest time that the upstream may take for a request of Milepost's own: to begin the stream of own_get, to
    /// begin a lost session again, and to answer at a URL of lifecycle.
    "own_request_timeout" Period => own_request_timeout {}
    /// The longest silence of an upstream, without a byte, before its stream is given up.
    "idle_timeout" TimeOrOff => idle_timeout {}
    /// The time without use after which a session that Milepost keeps between the two HTTP transports ends. A session
    /// with an open call or a listening client is in use. (Sessions of a command: upstream.idle_timeout.) A stream of
    /// own_get ends too, until the client's next message.
    "session_idle_timeout" TimeOrOff => session_idle_timeout {}
    /// The time without an answer after which a POST gets a stream of events.
    "upgrade_after" TimeOrOff => upgrade_after {}
    /// Methods besides tools/call whose POST may get such a stream.
    "upgrade_methods" Strings => upgrade_methods {}
    /// The silence of a stream of events after which a comment is written to the stream.
    "keep_alive" TimeOrOff => keep_alive {}
    /// Milepost holds a GET stream to the server for sessions whose client opens none.
    "own_get" Switch => own_get {}
    /// CORS, answered in the place of the upstream.
    "cors" Maybe<TypedTable<Cors>> => cors { default: "the upstream answers" }
    /// The headers X-Forwarded-* and Forwarded of requests: pass (unchanged), drop, or append (the client's address,
    /// host and protocol are added; headers of senders other than trusted_proxies are removed).
    "forwarded" OneOf<ForwardedRule> => forwarded {}
    /// The longest body of a request, in bytes; a longer body gets 413.
    "max_request_bytes" AtLeast<1> => max_request_bytes {}
    /// The longest time that a client may take to send the body of a request, not counting time in which the upstream
    /// does not read. A slower client gets 408.
    "body_timeout" TimeOrOff => body_timeout {}
    /// The bytes per second that a client must send of a request body, on average, from the tenth second on; 0 means no
    /// minimum. A slower client gets 408.
    "body_min_rate" AtLeast<0> => body_min_rate {}
    /// The largest number of open streams; a further stream gets 503. In a session that Milepost keeps between two
    /// transports, a call counts until it is answered, even if its client has disconnected.
    "max_streams" AtLeast<1> => max_streams {}
    /// The largest number of known sessions. A new session of a server of Streamable HTTP replaces the one unused for
    /// longest. If Milepost keeps the session, between the two HTTP transports, a further session gets 503.
    "max_sessions" AtLeast<1> => max_sessions {}
}
