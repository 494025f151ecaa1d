//! The options of `milepost wrap` for a server at a URL.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use url::Url;

use super::WrapError;
use crate::config::routes::{Authorities, Environment, HeaderRules, HttpUpstream, Route, Upstream};
use crate::config::values::proxy_url::{ProxyChoice, ProxyText};
use crate::policy_file::text::Spelling;

#[derive(Debug, Args)]
pub(super) struct RemoteArgs {
    /// A header that every request has, as `Name: value`; repeat for more. `${VAR}` is taken from the
    /// environment
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The file with the token for `Authorization: Bearer`; the file is read again when it changes
    #[arg(long, value_name = "FILE", conflicts_with = "bearer_env")]
    bearer_file: Option<PathBuf>,
    /// The environment variable that holds it
    #[arg(long, value_name = "VAR")]
    bearer_env: Option<String>,
    /// A header with the unchanged value of an environment variable; repeat for more
    #[arg(long = "header-env", value_name = "NAME=VAR", allow_hyphen_values = true)]
    header_env: Vec<String>,
    /// The transport of the server: http (Streamable HTTP) or sse (HTTP+SSE) [default: detected]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "TRANSPORT")]
    transport: Option<RemoteTransport>,
    /// Reach the server through this forward proxy, or `none` [default: that of HTTPS_PROXY, HTTP_PROXY and ALL_PROXY].
    /// `${VAR}` is taken from the environment
    #[arg(long, value_name = "URL")]
    forward_proxy: Option<String>,
    /// Trust the certificate authorities of this PEM file; repeat for more. `system` stands for those of the system
    /// [default: system]
    #[arg(long = "ca-file", value_name = "FILE")]
    ca_files: Vec<String>,
}

/// The transports of servers at an address, by the names that clients' files have for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RemoteTransport {
    /// Streamable HTTP; a server of HTTP+SSE is found out.
    #[value(alias = "streamable-http", alias = "streamableHttp")]
    Http,
    /// HTTP+SSE.
    Sse,
}

/// Returns a route to a URL. If `route` is given, its settings for its own server apply to this server.
pub(super) fn at_address(
    url: Url,
    transport: Option<RemoteTransport>,
    route: Option<Route>,
) -> Route {
    let new = || Upstream::Http(HttpUpstream::new(url.clone()));
    let mut route = route.unwrap_or_else(|| Route::new("/".to_owned(), new()));
    let known = match route.upstream {
        Upstream::Http(http) => http,
        _ => HttpUpstream::new(url.clone()),
    };
    let (url, sse) = match transport {
        Some(RemoteTransport::Sse) => (None, Some(url)),
        _ => (Some(url), None),
    };
    route.upstream = Upstream::Http(HttpUpstream { url, sse, ..known });
    route
}

/// Reads the text of a file with a token.
fn read_token(file: &Path) -> Result<String, WrapError> {
    fs::read_to_string(file)
        .map_err(|why| WrapError::BearerFile(format!("{}: {why}", file.display())))
}

/// Returns the header with the token in a file.
pub(super) fn bearer_in(file: &Path) -> Result<(HeaderName, HeaderValue), WrapError> {
    let why = || format!("{}: it holds no token", file.display());
    bearer(&read_token(file)?).ok_or_else(|| WrapError::BearerFile(why()))
}

/// Returns the header with a token, if the text contains one.
pub(super) fn bearer(token: &str) -> Option<(HeaderName, HeaderValue)> {
    let token = Some(token.trim()).filter(|token| !token.is_empty())?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some((AUTHORIZATION, value))
}

impl RemoteArgs {
    /// Adds the headers, the proxy and the certificate authorities to a route.
    pub(super) fn apply(&self, route: &mut Route) -> Result<(), WrapError> {
        if let Upstream::Http(upstream) = &mut route.upstream {
            self.apply_way(upstream)?;
        }
        self.apply_headers(&mut route.request_headers)
    }

    /// Sets the proxy through which the server is reached, and the authorities for its certificate.
    fn apply_way(&self, upstream: &mut HttpUpstream) -> Result<(), WrapError> {
        if let Some(proxy) = &self.forward_proxy {
            let proxy = Environment::of_process().fill(proxy).map_err(WrapError::Proxy)?;
            upstream.proxy = Some(ProxyText::read(&proxy).map_err(WrapError::Proxy)?);
        }
        if !self.ca_files.is_empty() {
            let mut urls = [&upstream.url, &upstream.sse].into_iter().flatten();
            let has_tls_proxy = upstream.proxy.as_ref().is_some_and(ProxyChoice::is_tls);
            if urls.all(|url| url.scheme() != "https") && !has_tls_proxy {
                let what = "it is for https:// only, and this server has http://";
                return Err(WrapError::CaFile(what.to_owned()));
            }
            let trusted = Authorities::list(self.ca_files.clone());
            trusted.check().map_err(WrapError::CaFile)?;
            upstream.ca_file = Some(trusted);
        }
        Ok(())
    }

    fn apply_headers(&self, rules: &mut HeaderRules) -> Result<(), WrapError> {
        let environment = Environment::of_process();
        let mut set = |name: HeaderName, mut value: HeaderValue| {
            value.set_sensitive(true);
            rules.set.retain(|(known, _)| *known != name);
            rules.bearer_files.retain(|(known, _)| *known != name);
            rules.set.push((name, value));
        };
        for header in &self.headers {
            // Show only the name, because the value may be a secret.
            let name = header.split_once(':').map(|(name, _)| format!("{name:?}: "));
            let name = name.unwrap_or_default();
            let wrong = |why: &str| WrapError::Header(format!("{name}{why}"));
            let filled = environment.fill(header).map_err(|why| wrong(&why))?;
            let form = "`Name: value` is expected";
            let (name, value) = filled.split_once(':').ok_or_else(|| wrong(form))?;
            let name = name.trim().parse().map_err(|_| wrong(form))?;
            let value =
                value.trim().parse().map_err(|_| wrong("a header cannot hold the value"))?;
            set(name, value);
        }
        for pair in &self.header_env {
            let form = || WrapError::HeaderEnv("`NAME=VAR` is expected".to_owned());
            let (name, variable) = pair.split_once('=').ok_or_else(form)?;
            let wrong = |why: &str| WrapError::HeaderEnv(format!("{name}: {why}"));
            let header = name.trim().parse().map_err(|_| form())?;
            // Use the value as it is: the client has filled it in, so `${…}` in it is not a variable.
            let value = environment.get(variable).map_err(|why| wrong(&why))?;
            let value = value.trim().parse();
            set(header, value.map_err(|_| wrong("a header cannot hold the value"))?);
        }
        if let Some(name) = &self.bearer_env {
            let token = environment.get(name).map_err(WrapError::Bearer)?;
            let no_token = || WrapError::Bearer(format!("{name} holds no token"));
            let (header, value) = bearer(token).ok_or_else(no_token)?;
            set(header, value);
        }
        Ok(())
    }

    /// Whether an option is given that only servers at a URL have.
    pub(super) fn is_given(&self) -> bool {
        let Self {
            headers,
            bearer_file,
            bearer_env,
            header_env,
            transport,
            forward_proxy,
            ca_files,
        } = self;
        let has_list = [headers, header_env, ca_files].iter().any(|list| !list.is_empty());
        let has_token = bearer_file.is_some() || bearer_env.is_some();
        has_list || has_token || transport.is_some() || forward_proxy.is_some()
    }

    pub(super) fn bearer_file(&self) -> Option<PathBuf> {
        self.bearer_file.clone()
    }

    pub(super) fn transport(&self) -> Option<RemoteTransport> {
        self.transport
    }
}
