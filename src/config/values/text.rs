//! Values of listeners, servers and connections that are strings. Those of the progress are in
//! `crates/core/src/policy_file/text.rs`.

use std::fmt;
use std::net::SocketAddr;

use milepost_core::spellings;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use url::Url;

use crate::config::routes::fleet::FleetKey;
use crate::config::routes::route::Secret;
use crate::config::values::ip_net::IpNet;

/// A whole number of at least `MIN`.
#[derive(Clone, Copy)]
pub(crate) struct AtLeast<const MIN: usize>(pub(crate) usize);

impl<const MIN: usize> AtLeast<MIN> {
    /// Returns the number, or an error if it is below `MIN`.
    pub(crate) fn of(number: i64) -> Result<Self, String> {
        let count = usize::try_from(number).ok().filter(|count| *count >= MIN);
        count.map(Self).ok_or_else(|| format!("at least {MIN} is expected"))
    }
}

impl<'de, const MIN: usize> Deserialize<'de> for AtLeast<MIN> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<const MIN: usize>;
        impl<const MIN: usize> Visitor<'_> for Reader<MIN> {
            type Value = AtLeast<MIN>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number of at least {MIN}")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<AtLeast<MIN>, E> {
                AtLeast::of(number).map_err(E::custom)
            }
        }
        // Requested as `i64`, TOML's own type, so that a negative number gets the error of this type.
        from.deserialize_i64(Reader)
    }
}

spellings! { #[cfg(test)]
    /// The address of a listener.
    pub(crate) Address: SocketAddr, "an address such as \"127.0.0.1:7332\"" {
        read: address,
        spell: ToString::to_string,
        schema: {
            "type": "string",
            "pattern": ":[0-9]+$",
            "examples": ["127.0.0.1:7332", "[::1]:7332"],
        }
    }

    /// A host name as clients send it, with or without a port.
    pub(crate) HostText: String, "a host name such as \"mcp.example.com\"" {
        read: host_name,
        spell: String::clone,
        schema: { "type": "string", "pattern": r"^[A-Za-z0-9._:\[\]-]+$" }
    }

    /// An address or a net of addresses.
    pub(crate) NetText: IpNet, "an address or a net such as \"10.0.0.0/8\"" {
        read: IpNet::read,
        spell: ToString::to_string,
        schema: {
            "type": "string",
            "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$",
            "examples": ["10.0.0.7", "10.0.0.0/8", "fd00::/8"],
        }
    }

    /// The origin of a page in a browser.
    pub(crate) OriginText: String, "an origin such as \"https://app.example.com\"" {
        read: origin,
        spell: String::clone,
        schema: { "type": "string", "pattern": "^[A-Za-z0-9+.-]+://[^/?#]+$" }
    }

    /// An origin, or `*`.
    pub(crate) OriginOrAny: String, "an origin such as \"https://app.example.com\", or \"*\"" {
        read: |text| if text == "*" { Ok("*".to_owned()) } else { origin(text) },
        spell: String::clone,
        schema: { "type": "string", "pattern": r"^(\*|[A-Za-z0-9+.-]+://[^/?#]+)$" }
    }

    /// The URL of an HTTP endpoint, with its text in the file. Errors do not show it, because it may contain a key.
    pub(crate) Endpoint: (Url, String), "a URL such as \"https://example.com/mcp\"" {
        read: endpoint,
        spell: |(_, text): &(Url, String)| text.clone(),
        schema: { "type": "string", "pattern": "^https?://" }
    }

    /// The URL of a listener or route as clients know it, without a final slash.
    pub(crate) PublicUrl: Url, "a URL such as \"https://mcp.example.com/tools\"" {
        read: public_url,
        spell: |url: &Url| url.as_str().trim_end_matches('/').to_owned(),
        schema: { "type": "string", "pattern": "^https?://[^?#]+$" }
    }

    /// A URL, which may be relative to another URL. Errors do not show it, because it may contain a key.
    pub(crate) Reference: String, "a path such as \"/tools/list\"" {
        read: |text: &str| match text {
            text if text.trim().is_empty() => Err(format!("{} is expected", Self::expected())),
            // The part after `#` is never sent, so the author must have meant another URL.
            text if text.contains('#') => Err("a URL without `#` is expected".to_owned()),
            text => Ok(text.to_owned()),
        },
        spell: String::clone,
        schema: {
            "type": "string",
            "minLength": 1,
            "pattern": "^[^#]*$",
            "examples": ["/tools/list"],
        }
    }

    /// A secret, which is never shown.
    pub(crate) Hidden: Secret, "a string such as \"${TOKEN}\"" {
        read: |text: &str| match text {
            "" => Err("more than an empty string is expected".to_owned()),
            // A token is sent in a header, so it cannot contain a space or line break (RFC 6750, 2.1).
            text if text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(Secret::new(text.to_owned()))
            }
            _ => Err("a token of ASCII characters without spaces is expected".to_owned()),
        },
        spell: |secret: &Secret| format!("{secret:?}"),
        schema: { "type": "string", "minLength": 1, "examples": ["${TOKEN}"] }
    }

    /// A key of a fleet, which is never shown.
    pub(crate) FleetKeyText: FleetKey, "64 hexadecimal digits such as \"${FLEET_KEY}\"" {
        read: FleetKey::read,
        spell: |key: &FleetKey| format!("{key:?}"),
        schema: { "type": "string", "examples": ["${FLEET_KEY}"] }
    }

    /// The path of a route.
    pub(crate) RoutePath: String, "a path such as \"/reports\"" {
        read: route_path,
        spell: String::clone,
        schema: { "type": "string", "pattern": "^/[^?#%]*[^?#%/]$", "examples": ["/reports"] }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
        let port = port.unwrap_or("7332");
        format!(
            "{text:?} is not an address with a port; one such as \"127.0.0.1:{port}\" is expected"
        )
    })
}

fn host_name(text: &str) -> Result<String, String> {
    let is_name = |text: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        !text.is_empty() && text.chars().all(is_part)
    };
    if is_name(text) {
        return Ok(text.to_owned());
    }
    // If the text is a URL, its host is used for the form that the error suggests.
    let inner = text.split_once("://").map_or(text, |(_, host)| host);
    let inner = inner.split(['/', '?', '#']).next().unwrap_or_default();
    let inner = if is_name(inner) { inner } else { "mcp.example.com" };
    Err(format!("{text:?} is not a host name; one such as {inner:?} is expected"))
}

fn origin(text: &str) -> Result<String, String> {
    let is_scheme = |scheme: &str| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if is_scheme(scheme) && host_name(host).is_ok() {
        let origin = format!("{scheme}://{host}").to_ascii_lowercase();
        // A difference in case is not an error: a browser writes the scheme and the host of an origin in lower case.
        if origin == text.to_ascii_lowercase() {
            return Ok(origin);
        }
        return Err(format!("{text:?} is not an origin; did you mean {origin:?}?"));
    }
    Err(format!("{text:?} is not an origin; one such as \"https://app.example.com\" is expected"))
}

fn endpoint(text: &str) -> Result<(Url, String), String> {
    let url = Url::parse(text).map_err(|error| {
        format!("this is no URL ({error}); one such as \"https://example.com/mcp\" is expected")
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("http:// or https:// is expected, not {}:", url.scheme()));
    }
    // Milepost does not make an `Authorization` header from the user and password of a URL, so a server that requires a
    // password would refuse each request.
    if !url.username().is_empty() || url.password().is_some() {
        let what = "a user or password in a URL is not sent; \
            headers.request.set = { authorization = \"Basic ${...}\" } is expected";
        return Err(what.to_owned());
    }
    if url.fragment().is_some() {
        return Err("a URL without `#` is expected".to_owned());
    }
    Ok((url, text.to_owned()))
}

fn public_url(text: &str) -> Result<Url, String> {
    let (mut url, _) = endpoint(text)?;
    if url.query().is_some() {
        return Err("a URL without `?` is expected".to_owned());
    }
    // `/mcp/` and `/mcp` mean the same, because the path of the route is appended to this URL.
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

fn route_path(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/".contains(c);
    let near: String = text.chars().filter(|c| is_part(*c)).collect();
    let parts: Vec<&str> =
        // Clients resolve `.` and `..` before they send a request, so a route with them could never be reached.
        near.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let near = format!("/{}", parts.join("/"));
    if near == text && text.len() > 1 {
        return Ok(near);
    }
    let near = if near.len() > 1 { &*near } else { "/reports" };
    Err(format!("{text:?} is not a path of a route; one such as {near:?} is expected"))
}
