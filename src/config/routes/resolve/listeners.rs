//! `[server]` and `[admin]`.

use std::net::SocketAddr;
use std::path::Path;

use toml::Spanned;

use super::pem;
use crate::config::routes::diagnostics::ConfigError;
use crate::config::routes::file::{Certificate, File};
use crate::config::routes::keys::said;
use crate::config::routes::route::{Admin, Server, ServerTls};
use crate::config::values::text::{Address, Text};

/// Where operators look unless told otherwise.
const ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7333);

pub(super) fn read(file: &File, folder: &Path) -> Result<(Server, Admin), ConfigError> {
    let table = &file.server;
    let defaults = Server::default();
    let server = Server {
        listen: table.listen.as_ref().map_or(defaults.listen, |listen| listen.get_ref().0),
        allowed_hosts: table.allowed_hosts.iter().map(|host| host.0.clone()).collect(),
        allowed_origins: table.allowed_origins.iter().map(|origin| origin.0.clone()).collect(),
        insecure: table.insecure,
        tls: table.tls.as_ref().map(|tls| certificate(tls, folder)).transpose()?,
        bearer: said(&table.bearer),
        drain: said(&table.drain).unwrap_or(defaults.drain),
        max_connections: table.max_connections.map_or(defaults.max_connections, |count| count.0),
        max_header_bytes: table.max_header_bytes.map_or(defaults.max_header_bytes, |count| count.0),
    };
    let closed = !server.insecure && server.allowed_hosts.is_empty();
    let admin = file.admin.as_ref();
    let place = admin.and_then(|admin| admin.listen.as_ref());
    for listen in table.listen.iter().chain(place) {
        if closed && !listen.get_ref().0.ip().to_canonical().is_loopback() {
            return Err(beyond_loopback(listen));
        }
    }
    let bearer = admin.and_then(|admin| said(&admin.bearer));
    let admin = admin.map(|_| place.map_or(ADMIN, |listen| listen.get_ref().0));
    if admin == Some(server.listen) && server.listen.port() != 0 {
        let span = place.or(table.listen.as_ref()).map_or(0..0, Spanned::span);
        let what =
            format!("clients connect to {} already; another port is expected", server.listen);
        return Err(ConfigError::new(span, what));
    }
    Ok((server, Admin { listen: admin, bearer }))
}

/// Pages of browsers can make any name lead to any address, so names decide who is answered.
fn beyond_loopback(listen: &Spanned<Text<Address>>) -> ConfigError {
    let what = format!(
        "{} can be reached from other machines; server.allowed_hosts = [\"the.name.they.use\"] is \
         expected as well (or server.insecure = true: any name)",
        listen.get_ref().0
    );
    ConfigError::new(listen.span(), what)
}

/// A certificate and its key, checked to be readable and to belong together.
pub(super) fn certificate(table: &Certificate, folder: &Path) -> Result<ServerTls, ConfigError> {
    let meant = ServerTls {
        certificate: folder.join(table.certificate.get_ref()),
        key: folder.join(table.key.get_ref()),
    };
    let chain = pem::certificates(&meant.certificate)
        .map_err(|what| ConfigError::new(table.certificate.span(), what))?;
    pem::key(&meant.key, chain).map_err(|what| ConfigError::new(table.key.span(), what))?;
    Ok(meant)
}
