//! The admin listener to which a command sends its requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use http::header::AUTHORIZATION;
use litemap::LiteMap;
use tokio::net::lookup_host;
use url::{Host, Url};

use super::WrapError;
use super::remote::{RemoteTransport, at_address, bearer, bearer_in};
use crate::commands::sites::SITES_MAX;
use crate::config::routes::{BearerFile, Route, Routes, Upstream};
use crate::config::values::proxy_url::ProxyChoice;
use crate::gateway::listen::{AdminToken, own_address};
use crate::observe::durations::state_dir;

/// The usual address of an admin listener.
const USUAL: &str = "http://127.0.0.1:7333";

/// The admin listener of `tap` and `top`.
#[derive(Debug, Clone, Args)]
pub struct AdminArgs {
    /// The admin listener of a `milepost serve`: HOST:PORT or a URL [default: all that runs for this user]
    #[arg(value_name = "ADMIN", value_parser = admin)]
    admin: Option<Url>,
    /// The route file whose `[admin]` table has the address and the token
    #[arg(long, value_name = "FILE", conflicts_with_all = ["admin", "bearer_file"])]
    config: Option<PathBuf>,
    /// The replicas of a fleet, by their admin listeners: a name stands for all of its addresses, as of a headless
    /// Service. With --config the file has the token
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = admin, conflicts_with = "admin")]
    fleet: Vec<Url>,
    /// The file that holds the token to present (`bearer` of `[admin]`); the file is read again when it changes
    #[arg(long, value_name = "FILE")]
    bearer_file: Option<PathBuf>,
}

/// Reads the URL of an admin listener from `HOST:PORT` or a URL.
fn admin(text: &str) -> Result<Url, String> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let url = match text.contains("://") {
        true => Url::parse(text).ok(),
        false => Url::parse(&format!("http://{text}")).ok().filter(|_| has_port),
    };
    url.ok_or_else(|| "HOST:PORT or a URL such as http://127.0.0.1:7333 is expected".to_owned())
}

/// The address of an admin listener, and how to reach it.
#[derive(Clone)]
pub struct AdminAddress {
    /// A route to the listener, with the headers of the requests.
    pub route: Route,
    /// The URL of the listener.
    pub url: Url,
    /// Whether the user or the route file gave the token.
    has_token: bool,
}

/// A token of an operator, from the arguments.
enum AdminSecret {
    /// The token of a route file.
    Text(String),
    /// The file with the token. Each request reads it, because the token may be replaced while the command runs.
    File(Arc<BearerFile>),
}

impl AdminSecret {
    /// Returns the token in a file.
    ///
    /// # Errors
    /// If the file does not contain a token now.
    fn in_file(file: &Path) -> Result<Self, WrapError> {
        bearer_in(file)?;
        Ok(Self::File(Arc::new(BearerFile::in_file(file.to_owned()))))
    }

    /// Returns the token in the `[admin]` table, if it has one.
    fn of(routes: &Routes) -> Option<Self> {
        let bearer = routes.admin().bearer.as_ref();
        bearer.map(|bearer| Self::Text(bearer.reveal().to_owned()))
    }
}

impl AdminAddress {
    /// Returns the usual address on this machine, without a token.
    pub fn usual() -> Option<Self> {
        Self::new(Url::parse(USUAL).ok()?, None).ok()
    }

    fn new(url: Url, token: Option<&AdminSecret>) -> Result<Self, WrapError> {
        if !["http", "https"].contains(&url.scheme()) || !url.has_host() {
            return Err(WrapError::Admin(url.to_string()));
        }
        let mut route = at_address(url.clone(), Some(RemoteTransport::Http), None);
        // Connect directly: the token must not reach a proxy that the environment names.
        if let Upstream::Http(upstream) = &mut route.upstream {
            upstream.proxy = Some(ProxyChoice::Direct);
        }
        let mut address = Self { route, url, has_token: token.is_some() };
        match token {
            Some(AdminSecret::Text(token)) => address.present(token)?,
            Some(AdminSecret::File(file)) => {
                let rules = &mut address.route.request_headers;
                rules.bearer_files = vec![(AUTHORIZATION, Arc::clone(file))];
            }
            None => {}
        }
        Ok(address)
    }

    /// Whether the token that a proxy on this machine has created may be sent to this address.
    pub fn takes_made_token(&self) -> bool {
        let is_local = match self.url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        is_local && !self.has_token
    }

    /// Sends this token with all requests.
    ///
    /// # Errors
    /// If the token cannot be the value of a header.
    pub fn present(&mut self, token: &str) -> Result<(), WrapError> {
        let no_token = || WrapError::BearerFile("the file holds no token".to_owned());
        self.route.request_headers.set = vec![bearer(token).ok_or_else(no_token)?];
        Ok(())
    }
}

impl AdminArgs {
    /// The addresses and the token; `None` where the arguments name no address. The names of a fleet are resolved anew
    /// with each call.
    ///
    /// # Errors
    /// If the route file cannot be used or has no admin listener, a file holds no token, or a name has no address.
    pub async fn addresses(&self) -> Result<Option<Vec<AdminAddress>>, WrapError> {
        if self.fleet.is_empty() {
            return Ok(self.address()?.map(|address| vec![address]));
        }
        let token = match (&self.config, &self.bearer_file) {
            (Some(file), _) => AdminSecret::of(&Routes::load(file)?),
            (None, file) => file.as_deref().map(AdminSecret::in_file).transpose()?,
        };
        let mut found: LiteMap<_, _> = LiteMap::new();
        for url in &self.fleet {
            let no_address = || WrapError::Admin(url.to_string());
            let place = (url.host_str(), url.port_or_known_default());
            let (Some(host), Some(port)) = place else { return Err(no_address()) };
            let host = host.trim_matches(['[', ']']);
            let nobody = |error| WrapError::NoReplica(host.to_owned(), error);
            for address in lookup_host((host, port)).await.map_err(nobody)?.take(SITES_MAX) {
                let mut url = url.clone();
                url.set_ip_host(address.ip()).map_err(|()| no_address())?;
                found.insert(address, AdminAddress::new(url, token.as_ref())?);
            }
        }
        Ok(Some(found.into_iter().map(|(_, value)| value).collect()))
    }

    /// Whether the addresses are those of replicas, which come and go.
    pub fn is_of_fleet(&self) -> bool {
        !self.fleet.is_empty()
    }

    /// Returns the address and the token; `None` if the arguments do not name an address.
    fn address(&self) -> Result<Option<AdminAddress>, WrapError> {
        if let Some(file) = &self.config {
            let routes = Routes::load(file)?;
            let listen = routes.admin().listen.ok_or_else(|| WrapError::NoAdmin(file.clone()))?;
            let address = format!("http://{}", own_address(listen));
            let url = Url::parse(&address).map_err(|_| WrapError::Admin(address))?;
            let token = AdminSecret::of(&routes);
            let mut address = AdminAddress::new(url, token.as_ref())?;
            // The command may run on another machine than the proxy, whose token file is then not here.
            let made = state_dir(None, routes.state())
                .and_then(|folder| AdminToken::read(&AdminToken::place(&folder)).ok());
            if let Some(made) = made.filter(|_| token.is_none()) {
                address.present(made.secret().reveal())?;
            }
            return Ok(Some(address));
        }
        let token = self.bearer_file.as_deref().map(AdminSecret::in_file).transpose()?;
        let url = match &self.admin {
            Some(url) => url.clone(),
            // A token belongs to one address: without another one, to the usual address.
            None if token.is_some() => {
                Url::parse(USUAL).map_err(|_| WrapError::Admin(USUAL.to_owned()))?
            }
            None => return Ok(None),
        };
        Ok(Some(AdminAddress::new(url, token.as_ref())?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http::HeaderMap;

    use super::*;
    use crate::transport::http::set_headers::set_headers;

    #[test]
    fn a_token_that_is_replaced_is_presented_from_then_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, "first\n").unwrap();
        let url = Url::parse(USUAL).unwrap();
        let secret = AdminSecret::in_file(&file).unwrap();
        let address = AdminAddress::new(url, Some(&secret)).unwrap();
        let presented = || {
            let mut headers = HeaderMap::new();
            // Copy the address, as each view of `top` does.
            set_headers(&address.clone().route.request_headers, None, &mut headers);
            headers[AUTHORIZATION].to_str().unwrap().to_owned()
        };
        assert_eq!(presented(), "Bearer first");
        fs::write(&file, "second one\n").unwrap();
        assert_eq!(presented(), "Bearer second one");
        // The last token is still used while the file is being replaced.
        fs::remove_file(&file).unwrap();
        assert_eq!(presented(), "Bearer second one");
        assert!(!address.takes_made_token());
        assert!(AdminSecret::in_file(&file).is_err());
    }
}
