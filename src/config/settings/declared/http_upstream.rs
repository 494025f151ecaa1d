//! The settings of `upstream` for servers over HTTP.

use milepost_core::settings;

use super::super::format::{Maybe, TypedTable};
use super::super::places::AuthorityFiles;
use crate::config::routes::route::{HttpUpstream, ServerTls};
use crate::config::values::proxy_url::ProxyText;
use crate::policy_file::format::Switch;

settings! { #[cfg(test)] HttpUpstream, Self::default();
    /// Whether HTTP/2 is also used without TLS. With TLS the version is negotiated.
    "http2" Switch => http2 {}
    /// The forward proxy between Milepost and the server, such as "http://user:password@proxy.example:3128", which
    /// takes precedence over the environment; "none" means no proxy. Servers with https:// are reached through a tunnel
    /// (CONNECT).
    "proxy" Maybe<ProxyText> => proxy {
        default: "HTTPS_PROXY, HTTP_PROXY or ALL_PROXY of the environment, but for NO_PROXY and this machine"
    }
    /// PEM file with the certificate authorities that are trusted instead of the system's, or a list of such files;
    /// "system" in a list stands for the system's: ["system", "ca.pem"].
    "ca_file" Maybe<AuthorityFiles> => ca_file { default: "the system's authorities" }
    /// The certificate that Milepost presents to a server that asks for one.
    "client_certificate" Maybe<TypedTable<ServerTls>> => client_certificate {}
}
