//! The command line of `milepost tap`.

use std::path::PathBuf;

use clap::Args;
use url::form_urlencoded::Serializer;
use url::{Host, Url};

use super::WrapError;
use super::remote::{RemoteTransport, at_address, bearer, read_token};
use crate::config::routes::{Route, Routes};
use crate::gateway::listen::{AdminToken, own_address};
use crate::observe::calls::PATH_OF_TAP;
use crate::observe::durations::state_dir;

/// `milepost tap`.
#[derive(Debug, Args)]
pub struct TapArgs {
    /// The admin listener of `milepost serve`: HOST:PORT or a URL
    #[arg(value_name = "ADMIN", default_value = "127.0.0.1:7333", value_parser = admin)]
    admin: Url,
    /// The route file whose `[admin]` table has the address and the token
    #[arg(long, value_name = "FILE", conflicts_with_all = ["admin", "bearer_file"])]
    config: Option<PathBuf>,
    /// The file that holds the token to present (`bearer` of `[admin]`)
    #[arg(long, value_name = "FILE")]
    bearer_file: Option<PathBuf>,
    /// Only messages of this route
    #[arg(long, value_name = "PATH")]
    route: Option<String>,
    /// Only messages of calls of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only messages of which this became: forwarded, repaired, withheld, added, or the name of a reason or
    /// a repair (docs/verdicts.md)
    #[arg(long, value_name = "NAME")]
    verdict: Option<String>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The URL of an admin listener, from `HOST:PORT` or a URL.
fn admin(text: &str) -> Result<Url, String> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let url = match text.contains("://") {
        true => Url::parse(text).ok(),
        false => Url::parse(&format!("http://{text}")).ok().filter(|_| has_port),
    };
    url.ok_or_else(|| "HOST:PORT or a URL such as http://127.0.0.1:7333 is expected".to_owned())
}

/// The admin listener that `milepost tap` asks.
pub struct AdminAddress {
    /// The address with its headers.
    pub route: Route,
    /// The URL of the request.
    pub url: Url,
    /// Whether the user or the route file gave the token.
    has_token: bool,
}

impl AdminAddress {
    /// Whether the token that a proxy of this machine made may be sent there.
    pub fn takes_made_token(&self) -> bool {
        let is_local = match self.url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        is_local && !self.has_token
    }

    /// Presents this token.
    ///
    /// # Errors
    /// If no header can hold the token.
    pub fn present(&mut self, token: &str) -> Result<(), WrapError> {
        let no_token = || WrapError::BearerFile("the file holds no token".to_owned());
        self.route.request_headers.set = vec![bearer(token).ok_or_else(no_token)?];
        Ok(())
    }
}

impl TapArgs {
    /// The address and the token.
    ///
    /// # Errors
    /// If the route file cannot be used or has no admin listener, or a file holds no token.
    pub fn resolve(&self) -> Result<AdminAddress, WrapError> {
        let mut admin = self.admin.clone();
        let (mut token, mut made) = (None, None);
        if let Some(file) = &self.config {
            let routes = Routes::load(file)?;
            let listen = routes.admin().listen.ok_or_else(|| WrapError::NoAdmin(file.clone()))?;
            let address = format!("http://{}", own_address(listen));
            admin = Url::parse(&address).map_err(|_| WrapError::Admin(address))?;
            token = routes.admin().bearer.as_ref().map(|bearer| bearer.reveal().to_owned());
            // An address that other machines can reach does not tell where its token is.
            made = state_dir(None, routes.state())
                .and_then(|folder| AdminToken::read(&AdminToken::place(&folder)).ok())
                .map(|made| made.secret().reveal().to_owned());
        }
        if let Some(file) = &self.bearer_file {
            token = Some(read_token(file)?);
        }
        if !["http", "https"].contains(&admin.scheme()) || !admin.has_host() {
            return Err(WrapError::Admin(admin.to_string()));
        }
        admin.set_path(PATH_OF_TAP);
        let mut query = Serializer::new(String::new());
        for (name, value) in
            [("route", &self.route), ("tool", &self.tool), ("verdict", &self.verdict)]
        {
            query.extend_pairs(value.iter().map(|value| (name, value)));
        }
        query.extend_pairs(self.json.then_some(("format", "json")));
        let query = query.finish();
        admin.set_query((!query.is_empty()).then_some(&*query));
        let route = at_address(admin.clone(), Some(RemoteTransport::Http), None);
        let mut address = AdminAddress { route, url: admin, has_token: token.is_some() };
        if let Some(token) = token.or(made) {
            address.present(&token)?;
        }
        Ok(address)
    }
}
