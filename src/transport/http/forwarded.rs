//! Headers in which a front names its client and the path prefix that the front removes: `X-Forwarded-*` and
//! `Forwarded` (RFC 7239). All functions are pure.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue};

use crate::config::routes::{ForwardedRule, Route};
use crate::config::values::ip_net::IpNet;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// Limit of the bytes of a path in `X-Forwarded-Prefix`.
const PREFIX_MAX: usize = 256;

/// The path that a trusted front has removed from the path of a request: an absolute path without a final slash.
#[derive(Debug, Clone)]
pub struct ForwardedPrefix(Box<str>);

impl ForwardedPrefix {
    /// Reads `X-Forwarded-Prefix`. Returns `None` unless there is exactly one such header and its value is a plain
    /// absolute path. The value becomes a part of a URL for the client, which must not lead to another host.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(PREFIX).iter();
        // With two headers, it is unknown which comes from the front and which from the client.
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let path = value.to_str().ok().filter(|path| path.len() <= PREFIX_MAX)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_of_a_path =
            |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+;=:@".contains(&byte);
        // Without this check, a path of `/` would turn the endpoint into the name of a host (`//…`).
        let is_plain = path.starts_with('/')
            && !path.ends_with('/')
            && path.bytes().all(is_of_a_path)
            && !path.contains("//")
            && !path.contains("..")
            // The URL parsers of browsers decode `%2e` as a dot.
            && !path.to_ascii_lowercase().contains("%2e");
        is_plain.then(|| Self(path.into()))
    }
}

/// Returns the path at which the client of a request reaches a route, without a final slash. For a route with a
/// `public_url` it is the path of that URL, which already includes the prefix that fronts remove.
pub fn public_path(route: &Route, extensions: &Extensions) -> String {
    let prefix = extensions.get::<ForwardedPrefix>().filter(|_| route.public_url.is_none());
    format!("{}{}", prefix.map_or("", |prefix| &prefix.0), route.public_path())
}

/// Facts about a request that are not in its headers.
#[derive(Debug, Clone, Copy)]
pub struct ForwardedBy<'a> {
    /// The address from which the request came.
    pub client: IpAddr,
    /// The host that the request names.
    pub host: Option<&'a str>,
    /// Whether the request came over TLS.
    pub is_secure: bool,
    /// The addresses of trusted fronts.
    pub trusted: &'a [IpNet],
}

/// Applies the rule of a route to the headers of a request. Returns whether values were left out.
pub fn apply(rule: ForwardedRule, headers: &mut HeaderMap, by: &ForwardedBy<'_>) -> bool {
    match rule {
        ForwardedRule::Pass => false,
        ForwardedRule::Drop => remove_all(headers),
        ForwardedRule::Append => append(headers, by),
    }
}

/// Removes every header in which fronts name clients. Returns whether the request had one.
fn remove_all(headers: &mut HeaderMap) -> bool {
    let is_one =
        |name: &&HeaderName| **name == FORWARDED || name.as_str().starts_with("x-forwarded-");
    let names: Vec<HeaderName> = headers.keys().filter(is_one).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
    !names.is_empty()
}

fn append(headers: &mut HeaderMap, by: &ForwardedBy<'_>) -> bool {
    let is_trusted = |address: IpAddr| by.trusted.iter().any(|net| net.contains(address));
    // The client itself may have written these headers, unless the request comes from a trusted front.
    let mut left_out = !is_trusted(by.client) && remove_all(headers);
    let has = |headers: &HeaderMap, names: &[HeaderName]| {
        names.iter().any(|name| headers.contains_key(name))
    };
    // Only the form that the front uses is continued: in the other form the front would appear as the client.
    let (has_old, has_new) = (has(headers, &[FOR, HOST, PROTO]), has(headers, &[FORWARDED]));
    // A request without such headers gets both forms, because a server may read only one of them.
    if has_new || !has_old {
        let elements = values(headers, &FORWARDED);
        let told = |element: &String| is_trusted_node(&for_of(element), is_trusted);
        let mut kept = believed(&elements, told);
        left_out |= kept.len() < elements.len();
        kept.push(element(by));
        set(headers, FORWARDED, &kept);
    }
    if has_old || !has_new {
        let addresses = values(headers, &FOR);
        let told = |address: &String| is_trusted_node(address, is_trusted);
        let mut kept = believed(&addresses, told);
        left_out |= kept.len() < addresses.len();
        // Each hop adds one address, one host and one scheme, so as many hosts and schemes are trusted as addresses.
        let hops = kept.len().max(1);
        kept.push(by.client.to_canonical().to_string());
        set(headers, FOR, &kept);
        let proto = Some(proto(by).to_owned());
        for (name, own) in [(HOST, by.host.map(str::to_owned)), (PROTO, proto)] {
            let mut told = values(headers, &name);
            left_out |= told.len() > hops;
            // The last values are kept: each hop appends its own, and the first values may come from the client.
            told.drain(..told.len().saturating_sub(hops));
            if told.is_empty() {
                told.extend(own);
            }
            set(headers, name, &told);
        }
    }
    left_out
}

/// Returns the values from the last one that is not the address of a trusted front. Values before it are not trusted.
fn believed(values: &[String], is_front: impl Fn(&String) -> bool) -> Vec<String> {
    let client = values.iter().rposition(|value| !is_front(value)).unwrap_or(0);
    values.get(client..).unwrap_or_default().to_vec()
}

/// Returns the address of a trusted front's client: the last address that is not that of a front. `None` if the fronts
/// name no client.
///
/// Most fronts write `X-Forwarded-For` and pass a `Forwarded` of the client, so the newer form is read only if the
/// older one is missing.
pub fn client_named(headers: &HeaderMap, trusted: &[IpNet]) -> Option<IpAddr> {
    let mut nodes = values(headers, &FOR);
    if nodes.is_empty() {
        nodes = values(headers, &FORWARDED).iter().map(|element| for_of(element)).collect();
    }
    let is_trusted = |address| trusted.iter().any(|net| net.contains(address));
    // Searched from the end: each front appends the address of its client, so the last addresses come from fronts.
    let last = nodes.iter().rfind(|node| !is_trusted_node(node, is_trusted))?;
    address_of(last)
}

/// Whether a node, with or without a port, is a trusted address.
fn is_trusted_node(node: &str, is_trusted: impl Fn(IpAddr) -> bool) -> bool {
    address_of(node).is_some_and(is_trusted)
}

/// Returns the address of a node, with or without a port.
fn address_of(node: &str) -> Option<IpAddr> {
    let host = match node.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        // One colon precedes a port; several are part of an IPv6 address without brackets.
        None if node.matches(':').count() == 1 => node.split(':').next().unwrap_or_default(),
        None => node,
    };
    host.parse().ok()
}

/// Returns the value of `for` in an element of `Forwarded`; empty if there is none.
fn for_of(element: &str) -> String {
    let mut pairs = split(element, ';').into_iter().filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        // Quotes and backslashes are only syntax, because no address contains them.
        name.trim().eq_ignore_ascii_case("for").then(|| value.trim().replace(['"', '\\'], ""))
    });
    // RFC 7239, 4: a parameter occurs once in an element. If it occurs more often, the last one is used.
    pairs.next_back().unwrap_or_default()
}

/// Returns the values of all lines of a header, in order.
fn values(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let lines = headers.get_all(name).iter();
    let values = lines.flat_map(|line| split(&String::from_utf8_lossy(line.as_bytes()), ','));
    values.filter(|value| !value.is_empty()).collect()
}

/// Returns the parts of a text between separators, ignoring separators in quoted strings.
fn split(text: &str, separator: char) -> Vec<String> {
    // A separator within quotes belongs to the value (RFC 9110, 5.6.4).
    let (mut parts, mut is_quoted, mut is_escaped) = (vec![String::new()], false, false);
    for character in text.chars() {
        if character == separator && !is_quoted {
            parts.push(String::new());
            continue;
        }
        is_quoted ^= character == '"' && !is_escaped;
        // A backslash escapes the next character, even another backslash.
        is_escaped = character == '\\' && is_quoted && !is_escaped;
        parts.last_mut().into_iter().for_each(|part| part.push(character));
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

/// Returns an element of `Forwarded` about the client.
fn element(by: &ForwardedBy<'_>) -> String {
    let node = match by.client.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    // A host contains no quotation marks: admission has checked it.
    let host = by.host.map(|host| format!(";host=\"{host}\"")).unwrap_or_default();
    format!("for={node}{host};proto={}", proto(by))
}

fn proto(by: &ForwardedBy<'_>) -> &'static str {
    if by.is_secure { "https" } else { "http" }
}

fn set(headers: &mut HeaderMap, name: HeaderName, values: &[String]) {
    headers.remove(&name);
    if !values.is_empty()
        && let Ok(value) = HeaderValue::from_bytes(values.join(", ").as_bytes())
    {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_plain_absolute_path() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(PREFIX, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            ForwardedPrefix::read(&headers).map(|prefix| prefix.0.into_string())
        };
        for (value, path) in [("/mcp", "/mcp"), ("/a/b-c_d%20/", "/a/b-c_d%20"), ("/a.b", "/a.b")] {
            assert_eq!(read(&[value]).as_deref(), Some(path));
        }
        let (longest, long) = (format!("/{}", "a".repeat(255)), format!("/{}", "a".repeat(256)));
        assert_eq!(read(&[&longest]), Some(longest.clone()));
        let wrong = [
            "",
            "/",
            "//",
            "a",
            "//evil.example",
            "/a//b",
            "/a//",
            "/../a",
            "/a/..",
            "/a/%2E%2e/b",
            "/a?b",
            "/a#b",
            "/a b",
            "/a\\b",
            "/a, /b",
            "/a\tb",
            "/\u{e9}",
            "http://evil.example/a",
            &long,
        ];
        for value in wrong {
            assert_eq!(read(&[value]), None, "{value:?}");
        }
        assert_eq!((read(&[]), read(&["/a", "/a"])), (None, None));
    }

    const TRUSTED: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];

    #[track_caller]
    fn check(
        rule: ForwardedRule,
        client: &str,
        sent: &[(&str, &str)],
        gone: bool,
        is: &[(&str, &str)],
    ) {
        let trusted = TRUSTED.map(|net| IpNet::read(net).unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let by = ForwardedBy {
            client: client.parse().unwrap(),
            host: Some("mcp.example:7332"),
            is_secure: false,
            trusted: &trusted,
        };
        assert_eq!(apply(rule, &mut headers, &by), gone);
        let mut found: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        found.sort_unstable();
        assert_eq!(found, is);
    }

    const SENT: [(&str, &str); 5] = [
        ("forwarded", "for=1.1.1.1"),
        ("x-forwarded-for", "1.1.1.1"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-port", "1"),
        ("x-other", "1"),
    ];

    #[test]
    fn they_pass_or_are_dropped_as_the_route_says() {
        check(ForwardedRule::Pass, "8.8.8.8", &SENT, false, &SENT);
        check(ForwardedRule::Drop, "10.0.0.1", &SENT, true, &SENT[4..]);
        check(ForwardedRule::Drop, "10.0.0.1", &SENT[4..], false, &SENT[4..]);
    }

    #[test]
    fn values_of_a_client_that_is_not_trusted_are_replaced() {
        let own = [
            ("forwarded", "for=8.8.8.8;host=\"mcp.example:7332\";proto=http"),
            ("x-forwarded-for", "8.8.8.8"),
            ("x-forwarded-host", "mcp.example:7332"),
            ("x-forwarded-proto", "http"),
            ("x-other", "1"),
        ];
        check(ForwardedRule::Append, "8.8.8.8", &SENT, true, &own);
        check(ForwardedRule::Append, "::ffff:8.8.8.8", &SENT[4..], false, &own);
    }

    #[test]
    fn a_trusted_front_is_believed_as_far_as_it_saw_itself() {
        let append = ForwardedRule::Append;
        check(
            append,
            "10.0.0.1",
            &[
                ("x-forwarded-for", "6.6.6.6, 8.8.8.8"),
                ("x-forwarded-for", "10.0.0.2"),
                ("x-forwarded-host", "evil.example, mcp.example, inner"),
                ("x-forwarded-proto", "https"),
            ],
            true,
            &[
                ("x-forwarded-for", "8.8.8.8, 10.0.0.2, 10.0.0.1"),
                ("x-forwarded-host", "mcp.example, inner"),
                ("x-forwarded-proto", "https"),
            ],
        );
        check(
            append,
            "fd00::1",
            &[("forwarded", "for=6.6.6.6;host=\"a,b\", for=\"8.8.8.8:80\", For=\"[fd00::2]:1\"")],
            true,
            &[(
                "forwarded",
                "for=\"8.8.8.8:80\", For=\"[fd00::2]:1\", \
                 for=\"[fd00::1]\";host=\"mcp.example:7332\";proto=http",
            )],
        );
        check(
            append,
            "10.0.0.1",
            &[("x-forwarded-proto", "https")],
            false,
            &[
                ("x-forwarded-for", "10.0.0.1"),
                ("x-forwarded-host", "mcp.example:7332"),
                ("x-forwarded-proto", "https"),
            ],
        );
    }
}
