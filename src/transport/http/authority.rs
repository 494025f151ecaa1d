//! Reads `host[:port]`, as in `Host`, `:authority` and `Origin`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host and optionally a port, normalised so that equal authorities compare equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) host: Host,
    pub(crate) port: Option<u16>,
}

/// The host, without the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// An IP address. An IPv4 address in IPv6 form is stored as IPv4.
    Address(IpAddr),
    /// A name in lower case, without a final dot.
    Name(String),
}

impl Authority {
    /// Reads a host with or without a port, such as `localhost`, `localhost.:7332`, `127.0.0.1`, `[::1]:7332`. Returns
    /// `None` for everything else: user names, zones, empty hosts, invalid ports.
    ///
    /// Forms that only some resolvers accept as an address (`127.1`, `0x7f.1`) count as names.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']')?;
                let address: Ipv6Addr = address.parse().ok()?;
                // An IPv4 address in IPv6 form is compared as IPv4.
                (Host::Address(IpAddr::V6(address).to_canonical()), rest)
            }
            None => {
                let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (host_name(host)?, port)
            }
        };
        let port = match port {
            // RFC 3986 allows a colon without a port.
            "" | ":" => None,
            port => Some(port_number(port.strip_prefix(':')?)?),
        };
        Some(Self { host, port })
    }

    /// Whether the host means the local machine, on every machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Address(address) => address.is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }
}

fn host_name(text: &str) -> Option<Host> {
    // Addresses are read strictly, as `Ipv4Addr` does, so `127.1` counts as a name, and not as a loopback name.
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(Host::Address(IpAddr::V4(address)));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (!name.is_empty() && name.bytes().all(fine)).then(|| Host::Name(name.to_ascii_lowercase()))
}

/// Reads a port of digits only, because `u16::from_str` also accepts a sign.
fn port_number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: Option<(&str, Option<u16>)>) {
        let read = Authority::parse(text).map(|read| {
            let host = match read.host {
                Host::Address(address) => address.to_string(),
                Host::Name(name) => name,
            };
            (host, read.port)
        });
        let expected = shown.map(|(host, port)| (host.to_owned(), port));
        assert_eq!(read, expected, "{text:?}");
    }

    #[test]
    fn what_means_the_same_reads_the_same() {
        check("localhost", Some(("localhost", None)));
        check("LocalHost.", Some(("localhost", None)));
        check("localhost.:80", Some(("localhost", Some(80))));
        check("127.0.0.1:7332", Some(("127.0.0.1", Some(7332))));
        check("[::1]", Some(("::1", None)));
        check("[0:0:0:0:0:0:0:1]:1", Some(("::1", Some(1))));
        check("[::ffff:127.0.0.1]:7332", Some(("127.0.0.1", Some(7332))));
        check("[::FFFF:7f00:1]", Some(("127.0.0.1", None)));
        check("example.com:", Some(("example.com", None)));
        check("a_b-c.example", Some(("a_b-c.example", None)));
    }

    #[test]
    fn what_only_some_take_for_an_address_is_a_name() {
        for text in ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.0.0.01"] {
            check(text, Some((text, None)));
            assert!(!Authority::parse(text).unwrap().is_loopback());
        }
    }

    #[test]
    fn what_is_no_authority_is_refused() {
        for text in [
            "",
            ".",
            ":80",
            "user@localhost",
            "localhost:80:80",
            "localhost:+80",
            "localhost:65536",
            "localhost:8o",
            "local host",
            "localhost/",
            "localhost\\",
            "localhost,evil.example",
            "::1",
            "[::1",
            "[::1]x",
            "[::1%lo]",
            "[127.0.0.1]",
            "[localhost]",
            "ｌocalhost",
            "localhost\0",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn loopback_is_the_whole_of_it() {
        for (text, loopback) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.8.9.10", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost..", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("0.0.0.0", false),
            ("[::]", false),
            ("192.168.1.5", false),
        ] {
            assert_eq!(Authority::parse(text).unwrap().is_loopback(), loopback, "{text}");
        }
    }
}
