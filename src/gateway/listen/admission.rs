//! Admission: pure decisions about a request's head, the same for every path and method.
//!
//! A page of any site can send requests to a listener on the machine of the person who reads it. It cannot choose the
//! `Host` and `Origin` that the browser sends, so both are checked before any other part of the request.

use std::net::SocketAddr;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::connection::admit_upgrade;
use super::handler::Peer;
use crate::config::routes::{Secret, Server};
use crate::gateway::fleet::PassedOn;
use crate::transport::http::authority::{Authority, Host};
use crate::transport::http::client_name::ClientName;
use crate::transport::http::refusal::Refusal;
use crate::transport::http::via::Via;

/// Headers that decide about a request and so may occur only once: one program may read the first value and another the
/// last.
const ONCE: [&str; 7] = [
    "host",
    "origin",
    "authorization",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
];

/// The header in which a browser says how the site of a page is related to this one. No page can change it.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Content types that a browser sends for a page without a preflight request. The last is the empty type.
const FORM_TYPES: [&str; 4] =
    ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded", ""];

/// Checks whether a request that arrived at the address `local` is admitted.
///
/// # Errors
/// The first reason for a refusal.
pub fn admit(server: &Server, via: &Via, local: SocketAddr, parts: &Parts) -> Result<(), Refusal> {
    // A tunnel could lead anywhere, and TRACE would send the headers of a request back, secrets too (RFC 9110, 9.3.8).
    if matches!(parts.method, Method::CONNECT | Method::TRACE) {
        return Err(Refusal::Method);
    }
    if head_bytes(parts) > server.max_header_bytes {
        return Err(Refusal::HeadTooLarge);
    }
    // A quick check first: nearly no request has a header twice.
    let has_twice = parts.headers.len() != parts.headers.keys_len();
    if has_twice && let Some(name) = ONCE.into_iter().find(|name| is_twice(&parts.headers, name)) {
        return Err(Refusal::Twice(name));
    }
    if let Some(host) = host(parts)?
        && !answers_to(server, local, &host)
    {
        return Err(Refusal::Host);
    }
    if let Some(origin) = parts.headers.get(ORIGIN)
        && !origin.to_str().is_ok_and(|origin| may_speak(server, origin))
    {
        return Err(Refusal::Origin);
    }
    via.check(&parts.headers)?;
    admit_upgrade(parts)
}

/// Checks whether the page that sent a request may use the listener, by `Sec-Fetch-Site`. A page can leave `Origin`
/// out, for instance with an image, but it cannot change `Sec-Fetch-Site`.
///
/// # Errors
/// If a page of another site sent the request without `Origin`. [`admit`] checks an `Origin`.
pub fn admit_page(server: &Server, parts: &Parts) -> Result<(), Refusal> {
    let is_checked = server.check_pages && parts.method != Method::OPTIONS;
    let is_foreign = |site: &HeaderValue| matches!(site.as_bytes(), b"cross-site" | b"same-site");
    let foreign = parts.headers.get_all(SITE).iter().any(is_foreign);
    if is_checked && foreign && !parts.headers.contains_key(ORIGIN) {
        return Err(Refusal::CrossSite);
    }
    Ok(())
}

/// Checks that the body of a POST has an accepted type. A page of any site can send the types of forms, and a body
/// without a type, without a preflight request.
///
/// # Errors
/// If a browser sent the request with such a type.
pub fn admit_body(server: &Server, parts: &Parts) -> Result<(), Refusal> {
    if !server.check_pages || parts.method != Method::POST {
        return Ok(());
    }
    let headers = &parts.headers;
    let whole = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let kind = whole.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_form = FORM_TYPES.iter().any(|form| kind.eq_ignore_ascii_case(form.as_bytes()));
    // `fetch` of Node.js sends other `Sec-Fetch` headers, and is not a page.
    let is_page = || headers.contains_key(ORIGIN) || headers.contains_key(SITE);
    if is_form && is_page() { Err(Refusal::BodyType) } else { Ok(()) }
}

/// Checks the token of a request if the listener requires one. Returns whether `Authorization` was meant for Milepost,
/// so that it is not forwarded.
///
/// # Errors
/// If the listener requires a token and the request has another or none.
pub fn authorize(bearer: Option<&Secret>, headers: &HeaderMap) -> Result<bool, Refusal> {
    let Some(secret) = bearer else { return Ok(false) };
    let presented = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
    });
    let right = presented.is_some_and(|token| is_secret(token, secret));
    if right { Ok(true) } else { Err(Refusal::Unauthorized) }
}

/// The principal of a request, as far as it has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPrincipal {
    /// The name that a trusted front gives, or else the name in the certificate.
    pub name: Option<ClientName>,
    /// The name of the `principal` header, if it must not be forwarded: the client is not a trusted front, or the
    /// header names another principal than the verified one.
    pub foreign: Option<HeaderName>,
}

/// Finds the principal of a request. The certificate of a front names the front itself, so the front's header takes
/// precedence over its certificate. An empty value means no principal.
///
/// For a request that another replica passes on, that replica has found the principal and signed it. The headers of the
/// request then decide nothing.
///
/// # Errors
/// If a trusted front sends the header twice (one of the two may be the client's), or with a value that is no name.
pub fn principal(
    server: &Server,
    client: &Peer,
    parts: &Parts,
) -> Result<RequestPrincipal, Refusal> {
    let own = RequestPrincipal { name: client.name.clone(), foreign: None };
    let Some(header) = &server.principal else { return Ok(own) };
    let mut values = parts.headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(own) };
    let is_sole = values.next().is_none();
    let foreign = RequestPrincipal { foreign: Some(header.clone()), ..own.clone() };
    if !server.trusted_proxies.iter().any(|net| net.contains(client.remote.ip())) {
        return Ok(foreign);
    }
    let said = || if value.is_empty() { None } else { Some(ClientName::of_header(value)) };
    if parts.extensions.get::<PassedOn>().is_some() {
        let signed = client.name.clone().filter(ClientName::is_of_header);
        return Ok(if is_sole && said() == signed.map(Some) { own } else { foreign });
    }
    match (is_sole, said()) {
        (true, None) => Ok(own),
        (true, Some(name)) => {
            Ok(RequestPrincipal { name: Some(name.ok_or(Refusal::Principal)?), ..own })
        }
        (false, _) => Err(Refusal::Principal),
    }
}

/// Compares a token with the secret, in a time that depends only on the length of the presented text.
fn is_secret(presented: &[u8], secret: &Secret) -> bool {
    let secret = secret.reveal().as_bytes();
    // An empty secret matches nothing, not even an empty token.
    let mut differs = u8::from(presented.len() != secret.len() || secret.is_empty());
    for (byte, expected) in presented.iter().zip(secret.iter().cycle()) {
        differs = std::hint::black_box(differs | (byte ^ expected));
    }
    differs == 0
}

/// Returns the approximate size of the head as HTTP/1.1 writes it.
fn head_bytes(parts: &Parts) -> usize {
    let target = parts.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let line = |name: usize, value: usize| name + value + 4;
    let headers = parts.headers.iter();
    target + headers.map(|(name, value)| line(name.as_str().len(), value.len())).sum::<usize>()
}

fn is_twice(headers: &HeaderMap, name: &str) -> bool {
    headers.get_all(name).iter().nth(1).is_some()
}

/// Returns the host that a request names. HTTP/1.0 may name none, but no browser uses HTTP/1.0.
fn host(parts: &Parts) -> Result<Option<Authority>, Refusal> {
    let header = match parts.headers.get(HOST) {
        Some(value) => match value.to_str() {
            Ok("") => return Err(Refusal::NoHost),
            Ok(text) => Some(Authority::parse(text).ok_or(Refusal::Host)?),
            Err(_) => return Err(Refusal::Host),
        },
        None => None,
    };
    // A path, or a whole URL `http://host/path`; HTTP/2 always has the whole URL.
    match parts.uri.scheme_str() {
        Some("http" | "https") => {}
        None if parts.uri.authority().is_none() => {}
        _ => return Err(Refusal::Target),
    }
    let target = match parts.uri.authority() {
        Some(authority) => Some(Authority::parse(authority.as_str()).ok_or(Refusal::Host)?),
        None => None,
    };
    match (target, header) {
        // RFC 9112, 3.2.2: the host in the URL is valid. A server might use `Host` instead, so both must be equal.
        (Some(target), Some(header)) if target != header => Err(Refusal::TwoHosts),
        (None, None) if parts.version == Version::HTTP_10 => Ok(None),
        (target, header) => target.or(header).map(Some).ok_or(Refusal::NoHost),
    }
}

/// Returns the loopback host that a request names. Clients of a container's published port name a loopback host,
/// although the listener has another address.
pub fn loopback_name(parts: &Parts) -> Option<String> {
    match host(parts).ok()?.filter(Authority::is_loopback)?.host {
        Host::Name(name) => Some(name),
        Host::Address(address) => Some(address.to_string()),
    }
}

/// Whether a listener accepts a host: its own address, loopback names on loopback, and configured names, or every host
/// if `insecure` is set.
///
/// A loopback name may have any port, because `ssh -L` and `kubectl port-forward` change the port. This is safe: a page
/// that attacks by DNS rebinding has to use its own *name*.
fn answers_to(server: &Server, local: SocketAddr, host: &Authority) -> bool {
    if server.insecure {
        return true;
    }
    let here = local.ip().to_canonical();
    let has_port = host.port.is_none_or(|port| port == local.port());
    (here.is_loopback() && host.is_loopback())
        || (host.host == Host::Address(here) && has_port)
        || server.allowed_hosts.iter().filter_map(|text| Authority::parse(text)).any(|allowed| {
            allowed.host == host.host && (allowed.port.is_none() || allowed.port == host.port)
        })
}

/// Whether pages of an origin may use a listener: pages of the same machine, and of configured origins. The origin
/// `null` is refused, because any page can have it in a frame.
fn may_speak(server: &Server, origin: &str) -> bool {
    let Some(origin) = WebOrigin::parse(origin) else { return false };
    let local = matches!(&origin, WebOrigin::Web { at, .. } if at.is_loopback());
    local
        || server
            .allowed_origins
            .iter()
            .any(|text| WebOrigin::parse(text).as_ref() == Some(&origin))
}

/// A normalised origin, so that equal origins compare equal.
#[derive(PartialEq, Eq)]
enum WebOrigin {
    /// `http://host[:port]` or the same with `https`; the port is always present.
    Web { secure: bool, at: Authority },
    /// The origin of an extension or an application, in lower case.
    Other(String),
}

impl WebOrigin {
    fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (scheme, rest) = text.split_once("://")?;
        let secure = match scheme {
            "http" => false,
            "https" => true,
            _ => {
                let fine = |byte: u8| byte.is_ascii_graphic() && !b"/\\?#@,".contains(&byte);
                let whole = !scheme.is_empty() && !rest.is_empty() && rest.bytes().all(fine);
                return whole.then_some(Self::Other(text));
            }
        };
        let mut at = Authority::parse(rest)?;
        // An origin without a port has the usual one of its scheme (RFC 6454, 4).
        at.port.get_or_insert(if secure { 443 } else { 80 });
        Some(Self::Web { secure, at })
    }
}

#[cfg(test)]
mod tests;
