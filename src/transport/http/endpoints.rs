//! Finds the route of a path, and the endpoint of the route that the path names. All functions are pure.
//!
//! Paths are compared as they are written. Nothing is decoded, merged or resolved: `/%61`, `//a` and `/b/../a` are not
//! `/a`.

use std::collections::BTreeMap;

use crate::config::routes::{Route, Upstream};

/// Documents with authorization metadata, which are served beside a server's endpoint (RFC 8414, RFC 9728, OpenID
/// Connect Discovery).
const DOCUMENTS: [&str; 3] =
    [PROTECTED_RESOURCE, "oauth-authorization-server", "openid-configuration"];

/// The document that names a server and its authorization servers (RFC 9728).
pub(crate) const PROTECTED_RESOURCE: &str = "oauth-protected-resource";

/// The route and endpoint of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteMatch {
    /// The index of the route in the file.
    pub route: usize,
    /// Which endpoint of the route.
    pub part: EndpointKind,
}

/// The endpoints of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointKind {
    /// `/a`: the Streamable HTTP endpoint.
    Endpoint,
    /// `/a/sse`: the HTTP+SSE stream.
    Sse,
    /// `/a/messages`: the endpoint for POSTs of HTTP+SSE clients. Contains the rest of the path as written: nothing, or
    /// `/` and more, without segments such as `..` that lead elsewhere.
    Messages(String),
    /// A document about authorization. Contains its path at the upstream's origin, as written there.
    WellKnown(String),
}

/// The paths of all routes.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    /// The index of each route by its path, without a final slash.
    routes: BTreeMap<String, usize>,
    /// The path of each route's upstream, if it is reached over HTTP; empty for the root.
    upstreams: Vec<Option<String>>,
    /// Whether each route has a public URL.
    public: Vec<bool>,
    /// Routes by the path of their public URL, without a final slash, unless the path is the root. The first of several
    /// routes with the same path is used.
    public_paths: BTreeMap<String, usize>,
}

impl RouteTable {
    /// Returns a table of these routes.
    pub fn new<'a>(routes: impl IntoIterator<Item = &'a Route>) -> Self {
        let mut places = Self::default();
        routes.into_iter().for_each(|route| places.enter(route));
        places
    }

    /// Adds a route.
    pub fn enter(&mut self, route: &Route) {
        let number = self.upstreams.len();
        self.enter_late(route);
        self.upstreams[number] = upstream_path(&route.upstream);
        let public = route.public_url.as_ref().map(|url| without_slash(url.path()));
        if let Some(path) = public.filter(|path| !path.is_empty()) {
            self.public_paths.entry(path.to_owned()).or_insert(number);
        }
    }

    /// Adds a route of which only open calls continue. Such a route has no documents.
    pub fn enter_late(&mut self, route: &Route) {
        self.routes.insert(without_slash(&route.path).to_owned(), self.upstreams.len());
        self.upstreams.push(None);
        self.public.push(route.public_url.is_some());
    }

    /// Returns the route and endpoint of a path. The path of an endpoint may end with a slash.
    pub fn find(&self, path: &str) -> Option<RouteMatch> {
        let place = |(route, part)| RouteMatch { route, part };
        let plain = without_slash(path);
        // A route whose own path ends with `/sse` comes before the HTTP+SSE stream of a shorter path.
        let found = self.exact(plain).map(|route| (route, EndpointKind::Endpoint));
        found
            .or_else(|| Some((self.exact(plain.strip_suffix("/sse")?)?, EndpointKind::Sse)))
            .or_else(|| self.messages(path))
            .or_else(|| self.beside(plain))
            .or_else(|| self.below(plain))
            .map(place)
    }

    fn exact(&self, path: &str) -> Option<usize> {
        self.routes.get(path).copied()
    }

    fn messages(&self, path: &str) -> Option<(usize, EndpointKind)> {
        // Every `/messages` is tried, because the path of a route or of its server may contain the word too.
        path.match_indices("/messages").find_map(|(at, word)| {
            let rest = &path[at + word.len()..];
            let whole = rest.is_empty() || rest.starts_with('/');
            let route = self.exact(&path[..at]).filter(|_| whole && is_descendant(rest))?;
            Some((route, EndpointKind::Messages(rest.to_owned())))
        })
    }

    /// Returns the route for `/.well-known/NAME/a` and paths below, as RFC 8414 and RFC 9728 form them. `/a` is the
    /// path of the route, or of its public URL, which is the only URL that the route's clients know.
    /// `/.well-known/NAME` alone means a route only if there is no other.
    fn beside(&self, path: &str) -> Option<(usize, EndpointKind)> {
        let (name, rest) = DOCUMENTS.iter().find_map(|name| {
            let rest = path.strip_prefix("/.well-known/")?.strip_prefix(name)?;
            (rest.is_empty() || rest.starts_with('/')).then_some((name, rest))
        })?;
        // Without a path the document belongs to the whole origin. With several routes it would be ambiguous.
        if rest.is_empty() {
            let mut over_http = (0..).zip(&self.upstreams).filter(|(_, path)| path.is_some());
            let (Some((only, _)), None) = (over_http.next(), over_http.next()) else { return None };
            return Some((only, EndpointKind::WellKnown(format!("/.well-known/{name}"))));
        }
        // If the path of one route begins with that of another, the longer path is used. The first slash is skipped,
        // because the path of a route is not empty.
        let ends = rest.match_indices('/').map(|(at, _)| at).skip(1).chain([rest.len()]);
        let ends: Vec<usize> = ends.collect();
        let (route, below) = ends.iter().rev().find_map(|end| {
            let (path, below) = rest.split_at(*end);
            let public = || self.public_paths.get(path).copied();
            Some((self.exact(path).or_else(public)?, below))
        })?;
        let upstream = self.upstreams[route].as_ref().filter(|_| is_descendant(below))?;
        Some((route, EndpointKind::WellKnown(format!("/.well-known/{name}{upstream}{below}"))))
    }

    /// Returns the route for `/a/.well-known/NAME`, the form of OpenID Connect. A route with a public URL names its RFC
    /// 9728 document in this form too, so that a front that adds a prefix to paths leads to it.
    fn below(&self, path: &str) -> Option<(usize, EndpointKind)> {
        let (above, name) = path.rsplit_once("/.well-known/")?;
        let route = self.exact(above).filter(|_| DOCUMENTS.contains(&name))?;
        let upstream = self.upstreams[route].as_ref()?;
        let is_ours = name == PROTECTED_RESOURCE && self.public[route];
        // RFC 9728 puts the path of the server after the name of the document, and OpenID Connect before it.
        let (above, below) = if is_ours { ("", &**upstream) } else { (&**upstream, "") };
        Some((route, EndpointKind::WellKnown(format!("{above}/.well-known/{name}{below}"))))
    }
}

fn without_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

fn upstream_path(upstream: &Upstream) -> Option<String> {
    let Upstream::Http(http) = upstream else { return None };
    let url = http.url.as_ref().or(http.sse.as_ref())?;
    Some(without_slash(url.path()).to_owned())
}

/// Whether a path that is appended to another one stays below it, in whatever way the upstream resolves it.
fn is_descendant(rest: &str) -> bool {
    // Encoded forms are refused too, because the upstream may decode them before it resolves the path.
    let lower = rest.to_ascii_lowercase();
    let coded = ["%2e", "%2f", "%5c", "\\"].iter().any(|odd| lower.contains(odd));
    let dots = rest.split('/').any(|segment| matches!(segment, "." | ".."));
    !coded && !dots && !rest.contains("//")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::routes::HttpUpstream;

    fn http(path: &str, url: &str) -> Route {
        let upstream = HttpUpstream { url: Some(url.parse().unwrap()), ..HttpUpstream::default() };
        Route::new(path.to_owned(), Upstream::Http(upstream))
    }

    fn places() -> RouteTable {
        RouteTable::new(&[
            http("/a", "https://up.example/mcp"),
            http("/a/b", "https://up.example/deep/mcp/"),
            http("/top", "https://up.example"),
            Route::new("/demo".to_owned(), Upstream::Demo),
            http("/x/messages-old", "https://up.example/x"),
        ])
    }

    #[track_caller]
    fn check(path: &str, expected: Option<(usize, EndpointKind)>) {
        let expected = expected.map(|(route, part)| RouteMatch { route, part });
        assert_eq!(places().find(path), expected, "{path}");
    }

    fn messages(rest: &str) -> EndpointKind {
        EndpointKind::Messages(rest.to_owned())
    }

    fn document(path: &str) -> EndpointKind {
        EndpointKind::WellKnown(path.to_owned())
    }

    #[test]
    fn documents_below_a_public_route_are_those_beside_its_server() {
        let mut route = http("/a", "https://up.example/mcp");
        let find = |route: &Route, name: &str| {
            let found = RouteTable::new([route]).find(&format!("/a/.well-known/{name}"));
            found.map(|found| found.part)
        };
        let below = document("/mcp/.well-known/oauth-protected-resource");
        assert_eq!(find(&route, "oauth-protected-resource"), Some(below));
        route.public_url = Some("https://front.example/x/a".parse().unwrap());
        let beside = document("/.well-known/oauth-protected-resource/mcp");
        assert_eq!(find(&route, "oauth-protected-resource"), Some(beside));
        let other = document("/mcp/.well-known/openid-configuration");
        assert_eq!(find(&route, "openid-configuration"), Some(other));
    }

    #[test]
    fn documents_are_found_by_the_path_of_the_public_url_too() {
        let mut public = http("/a", "https://up.example/mcp");
        public.public_url = Some("https://front.example/x/a/".parse().unwrap());
        let table = RouteTable::new(&[public, http("/x", "https://up.example/other")]);
        let beside = |rest: &str| format!("/.well-known/oauth-protected-resource{rest}");
        for (path, expected) in [
            ("/x/a", Some((0, document(&beside("/mcp"))))),
            ("/a", Some((0, document(&beside("/mcp"))))),
            ("/x/a/b", Some((0, document(&beside("/mcp/b"))))),
            ("/x/b", Some((1, document(&beside("/other/b"))))),
            ("/y/a", None),
        ] {
            let expected = expected.map(|(route, part)| RouteMatch { route, part });
            assert_eq!(table.find(&beside(path)), expected, "{path}");
        }
        // The path of a public URL only leads to metadata documents: other requests reach a route by its own path.
        assert_eq!(table.find("/x/a"), None);
    }

    #[test]
    fn a_route_has_an_endpoint_and_the_two_parts_of_http_sse() {
        check("/a", Some((0, EndpointKind::Endpoint)));
        check("/a/", Some((0, EndpointKind::Endpoint)));
        check("/a/b", Some((1, EndpointKind::Endpoint)));
        check("/demo", Some((3, EndpointKind::Endpoint)));
        check("/a/sse", Some((0, EndpointKind::Sse)));
        check("/a/b/sse/", Some((1, EndpointKind::Sse)));
        check("/a/messages", Some((0, messages(""))));
        check("/a/messages/", Some((0, messages("/"))));
        check("/a/messages/x/y", Some((0, messages("/x/y"))));
        check("/a/messages/messages", Some((0, messages("/messages"))));
        check("/x/messages-old/messages/1", Some((4, messages("/1"))));
        check("/x/messages-old", Some((4, EndpointKind::Endpoint)));
    }

    #[test]
    fn nothing_is_matched_by_accident() {
        for path in [
            "",
            "/",
            "*",
            "//",
            "/b",
            "a",
            "//a",
            "/a//",
            "/A",
            "/a/c",
            "/ab",
            "/%61",
            "/a%2Fsse",
            "/a/./",
            "/a/.",
            "/a/..",
            "/b/../a",
            "/a/b/../sse",
            "/a;x",
            "/a\\",
            "/a/sse/x",
            "/a//sse",
            "/a/SSE",
            "/a/messagesx",
            "/a/messages//x",
            "/a/messages/..",
            "/a/messages/../../b",
            "/a/messages/%2E%2e/b",
            "/a/messages/x%2f..%2f..",
            "/a/messages/x\\..\\",
            "/messages",
            "/sse",
            "/x",
            "/x/messages",
        ] {
            check(path, None);
        }
    }

    #[test]
    fn documents_about_a_route_are_those_about_its_upstream() {
        for name in DOCUMENTS {
            let beside = |rest: &str| format!("/.well-known/{name}{rest}");
            check(&beside("/a"), Some((0, document(&beside("/mcp")))));
            check(&beside("/a/"), Some((0, document(&beside("/mcp")))));
            check(&beside("/a/x/y"), Some((0, document(&beside("/mcp/x/y")))));
            check(&beside("/a/b"), Some((1, document(&beside("/deep/mcp")))));
            check(&beside("/a/b/c"), Some((1, document(&beside("/deep/mcp/c")))));
            check(&beside("/a/bc"), Some((0, document(&beside("/mcp/bc")))));
            check(&beside("/top"), Some((2, document(&beside("")))));
            check(&beside("/top/mcp"), Some((2, document(&beside("/mcp")))));
            check(
                &format!("/a{}", beside("")),
                Some((0, document(&format!("/mcp{}", beside(""))))),
            );
            check(&format!("/top{}", beside("")), Some((2, document(&beside("")))));
            for path in [
                beside("/b"),
                beside("/demo"),
                beside("/ab"),
                beside("x/a"),
                beside("//a"),
                beside("/a//x"),
                beside("/a/.."),
                beside("/a/../secret"),
                beside("/a/%2e%2E/secret"),
                beside("/a/..%2fsecret"),
                format!("/demo{}", beside("")),
                format!("/b{}", beside("")),
                format!("{}{}", beside(""), beside("/a")),
            ] {
                check(&path, None);
            }
        }
        check("/.well-known/other/a", None);
        check("/.well-known/a", None);
        check("/a/.well-known/other", None);
        check("/a/.well-known/", None);
    }

    #[test]
    fn the_root_document_is_that_of_the_only_route_over_http() {
        let root = "/.well-known/oauth-protected-resource";
        check(root, None);
        let demo = Route::new("/demo".to_owned(), Upstream::Demo);
        let only = RouteTable::new(&[demo.clone(), http("/a", "https://up.example/mcp")]);
        let place = RouteMatch { route: 1, part: document(root) };
        assert_eq!(only.find(root), Some(place.clone()));
        assert_eq!(only.find(&format!("{root}/")), Some(place));
        assert_eq!(RouteTable::new(&[demo]).find(root), None);
    }
}
