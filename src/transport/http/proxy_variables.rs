//! The forward proxies that the environment names: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, as curl
//! reads them.

use std::net::IpAddr;

use url::Url;

use super::authority::{Authority, Host};
use crate::config::routes::Environment;
use crate::config::values::ip_net::IpNet;
use crate::config::values::proxy_url::ProxyUrl;

/// The proxy that the environment sets for one server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProxyVariable {
    /// The environment names no proxy for servers with this scheme.
    Unset,
    /// A variable names a proxy, but it is not used because the server is on this machine.
    Local(&'static str),
    /// The proxy that is used, and the variable that names it.
    Used(ProxyUrl, &'static str),
    /// A variable names a proxy that is not used; with the reason.
    Unused(&'static str, String),
}

impl ProxyVariable {
    /// Returns the proxy for the server at `url`. A server on this machine has none.
    pub(super) fn of(environment: &Environment, url: &Url) -> Self {
        let set = |name: &&'static str| {
            let value = environment.get(name).ok().map(str::trim);
            Some((*name, value.filter(|value| !value.is_empty())?))
        };
        // CGI gives a program the header `Proxy` of a request as `HTTP_PROXY` (CVE-2016-5385), so under CGI only the
        // name in lower case can be trusted.
        let is_cgi = environment.get("REQUEST_METHOD").is_ok();
        let of_scheme: &[&str] = match url.scheme() {
            "https" => &["https_proxy", "HTTPS_PROXY"],
            _ if is_cgi => &["http_proxy"],
            _ => &["http_proxy", "HTTP_PROXY"],
        };
        let names = of_scheme.iter().chain(&["all_proxy", "ALL_PROXY"]);
        let Some((variable, value)) = names.into_iter().find_map(set) else { return Self::Unset };
        let Some(server) = authority(url) else { return Self::Unset };
        if is_this_machine(&server) {
            return Self::Local(variable);
        }
        if let Some((name, list)) = ["no_proxy", "NO_PROXY"].iter().find_map(set)
            && let Some(entry) = exception(list, &server)
        {
            return Self::Unused(variable, format!("{name} has {entry:?}"));
        }
        let with_scheme = if value.contains("://") { value } else { &format!("http://{value}") };
        match ProxyUrl::read(with_scheme) {
            Ok(proxy) => Self::Used(proxy, variable),
            Err(why) => Self::Unused(variable, why),
        }
    }
}

fn authority(url: &Url) -> Option<Authority> {
    Authority::parse(&format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// Whether a server is on this machine, which a proxy on another machine cannot reach.
fn is_this_machine(server: &Authority) -> bool {
    let is_below = |name: &str| name.ends_with(".localhost");
    server.is_loopback() || matches!(&server.host, Host::Name(name) if is_below(name))
}

/// Returns the entry of a list of exceptions (`NO_PROXY`) that matches this server.
fn exception<'a>(list: &'a str, server: &Authority) -> Option<&'a str> {
    let mut entries = list.split([',', ' ', '\t']).filter(|entry| !entry.is_empty());
    entries.find(|entry| is_meant(entry, server))
}

/// Whether an entry matches a server. An entry is `*`, an address, a network, or a name, which includes all names below
/// it; a port may follow.
fn is_meant(entry: &str, server: &Authority) -> bool {
    if entry == "*" {
        return true;
    }
    let unbracketed = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(net) = IpNet::around(unbracketed.unwrap_or(entry)) {
        return matches!(server.host, Host::Address(address) if net.contains(address));
    }
    // curl treats `example.com` and `.example.com` alike.
    let name = entry.strip_prefix("*.").or_else(|| entry.strip_prefix('.')).unwrap_or(entry);
    let Some(Authority { host, port }) = Authority::parse(name) else { return false };
    if port.is_some_and(|port| Some(port) != server.port) {
        return false;
    }
    match (&host, &server.host) {
        (Host::Address(entry), Host::Address(server)) => same(*entry, *server),
        (Host::Name(above), Host::Name(name)) => name
            .strip_suffix(&**above)
            .is_some_and(|below| below.is_empty() || below.ends_with('.')),
        _ => false,
    }
}

fn same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the variable and the proxy, the variable that is not used, or `-`.
    fn found(variables: &[(&str, &str)], url: &str) -> String {
        let environment = variables.iter().copied().collect();
        match ProxyVariable::of(&environment, &url.parse().unwrap()) {
            ProxyVariable::Unset | ProxyVariable::Local(_) => "-".to_owned(),
            ProxyVariable::Used(proxy, variable) => format!("{variable} {proxy}"),
            ProxyVariable::Unused(variable, why) => format!("{variable} unused: {why}"),
        }
    }

    const HTTP: &str = "http://mcp.example/x";
    const HTTPS: &str = "https://mcp.example/x";

    #[test]
    fn each_scheme_has_its_variable_and_lower_case_comes_first() {
        let all = [
            ("http_proxy", "http://a:1"),
            ("HTTP_PROXY", "http://b:1"),
            ("https_proxy", "http://c:1"),
            ("HTTPS_PROXY", "http://d:1"),
            ("all_proxy", "http://e:1"),
            ("ALL_PROXY", "http://f:1"),
        ];
        for (first, http, https) in [
            (0, "http_proxy http://a:1", "https_proxy http://c:1"),
            (1, "HTTP_PROXY http://b:1", "https_proxy http://c:1"),
            (2, "all_proxy http://e:1", "https_proxy http://c:1"),
            (3, "all_proxy http://e:1", "HTTPS_PROXY http://d:1"),
            (4, "all_proxy http://e:1", "all_proxy http://e:1"),
            (5, "ALL_PROXY http://f:1", "ALL_PROXY http://f:1"),
            (6, "-", "-"),
        ] {
            assert_eq!(found(&all[first..], HTTP), http);
            assert_eq!(found(&all[first..], HTTPS), https);
        }
    }

    #[test]
    fn an_empty_variable_is_unset_and_a_proxy_needs_no_scheme() {
        let empty = [("https_proxy", ""), ("HTTPS_PROXY", " "), ("ALL_PROXY", "proxy:3128")];
        assert_eq!(found(&empty, HTTPS), "ALL_PROXY http://proxy:3128");
        let secret = [("HTTPS_PROXY", "me:c4n4ry@proxy:3128")];
        assert_eq!(found(&secret, HTTPS), "HTTPS_PROXY http://proxy:3128");
    }

    #[test]
    fn a_header_of_a_request_to_a_cgi_program_names_no_proxy() {
        let cgi = [("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "http://evil:1")];
        assert_eq!(found(&cgi, HTTP), "-");
        let both = [cgi[0], cgi[1], ("http_proxy", "http://a:1"), ("HTTPS_PROXY", "http://d:1")];
        assert_eq!(found(&both, HTTP), "http_proxy http://a:1");
        assert_eq!(found(&both, HTTPS), "HTTPS_PROXY http://d:1");
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_told_without_its_credentials() {
        let socks = found(&[("ALL_PROXY", "socks5h://me:c4n4ry@proxy:1080")], HTTPS);
        assert!(socks.starts_with("ALL_PROXY unused: a proxy at socks5h: is not supp"), "{socks}");
        assert!(!socks.contains("c4n4ry"));
        let broken = found(&[("HTTPS_PROXY", "http://c4n4ry:x y@:z")], HTTPS);
        assert!(broken.starts_with("HTTPS_PROXY unused: this is no URL"), "{broken}");
        assert!(!broken.contains("c4n4ry"));
    }

    #[test]
    fn servers_on_this_machine_have_no_proxy() {
        for url in [
            "http://localhost:3000/mcp",
            "http://LOCALHOST/mcp",
            "http://api.localhost/mcp",
            "https://127.0.0.1/mcp",
            "https://127.8.9.10:8443/mcp",
            "http://[::1]:3000/mcp",
            "http://[::ffff:127.0.0.1]/mcp",
        ] {
            assert_eq!(found(&[("ALL_PROXY", "http://proxy:1")], url), "-", "{url}");
        }
        for url in ["http://localhost.example/mcp", "http://10.0.0.1/mcp"] {
            assert_eq!(found(&[("ALL_PROXY", "http://proxy:1")], url), "ALL_PROXY http://proxy:1");
        }
    }

    /// Whether a list of exceptions contains the server at a URL.
    fn is_excepted(list: &str, url: &str) -> bool {
        let found = found(&[("ALL_PROXY", "http://proxy:1"), ("NO_PROXY", list)], url);
        found.starts_with("ALL_PROXY unused: NO_PROXY has ")
    }

    #[test]
    fn exceptions_are_names_suffixes_addresses_nets_and_ports() {
        for (list, url) in [
            ("*", HTTPS),
            ("other.example,mcp.example", HTTPS),
            ("other.example mcp.example", HTTPS),
            (" , ,MCP.Example", HTTPS),
            ("example", HTTPS),
            (".example", HTTPS),
            ("*.example", HTTPS),
            (".mcp.example", HTTPS),
            ("mcp.example.", HTTPS),
            ("mcp.example", "https://mcp.example./x"),
            ("mcp.example", "https://a.b.mcp.example/x"),
            ("mcp.example:443", HTTPS),
            ("mcp.example:80", HTTP),
            (".example:8080", "http://mcp.example:8080/x"),
            ("10.0.0.7", "http://10.0.0.7/x"),
            ("10.0.0.7:8080", "http://10.0.0.7:8080/x"),
            ("10.0.0.0/8", "http://10.1.2.3/x"),
            ("10.1.2.3/8", "http://10.200.0.1/x"),
            ("0.0.0.0/0", "http://10.1.2.3/x"),
            ("fd00::/8", "http://[fd00::1]/x"),
            ("fd00::1", "http://[fd00::1]/x"),
            ("[fd00::1]", "http://[fd00::1]/x"),
            ("[fd00::1]:8080", "http://[fd00::1]:8080/x"),
        ] {
            assert!(is_excepted(list, url), "{list} {url}");
        }
        for (list, url) in [
            ("", HTTPS),
            ("cp.example", HTTPS),
            ("x.mcp.example", HTTPS),
            ("mcp.example:80", HTTPS),
            ("mcp.example:x", HTTPS),
            ("10.0.0.7:80", "http://10.0.0.7:8080/x"),
            ("10.0.0.0/8", "http://11.1.2.3/x"),
            ("10.0.0.0/33", "http://10.0.0.1/x"),
            ("10.0.0.0/8", HTTPS),
            ("0.0.7", "http://10.0.0.7/x"),
            ("fd00::/8", "http://[fe80::1]/x"),
        ] {
            assert!(!is_excepted(list, url), "{list} {url}");
        }
    }

    #[test]
    fn the_list_in_lower_case_comes_first() {
        let lists = [("ALL_PROXY", "http://proxy:1"), ("no_proxy", "a.example"), ("NO_PROXY", "*")];
        assert_eq!(found(&lists, HTTPS), "ALL_PROXY http://proxy:1");
        assert_eq!(
            found(&lists, "http://a.example/x"),
            "ALL_PROXY unused: no_proxy has \"a.example\""
        );
    }
}
