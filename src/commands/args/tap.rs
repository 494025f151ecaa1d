//! The command line of `milepost tap`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use url::Url;
use url::form_urlencoded::Serializer;

use super::WrapError;
use super::remote::{RemoteTransport, at_address, bearer, read_token};
use crate::config::routes::{Route, Routes};
use crate::observe::calls::PATH_OF_TAP;

/// `milepost tap`.
#[derive(Debug, Args)]
pub struct TapArgs {
    /// The admin listener of `milepost serve`
    #[arg(value_name = "ADMIN", default_value = "http://127.0.0.1:7333")]
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

impl TapArgs {
    /// The address with its headers, and the URL of the request.
    ///
    /// # Errors
    /// If the route file cannot be used or has no admin listener, or a file holds no token.
    pub fn resolve(&self) -> Result<(Route, Url), WrapError> {
        let mut admin = self.admin.clone();
        let mut token = None;
        if let Some(file) = &self.config {
            let routes = Routes::load(file)?;
            let listen = routes.admin().listen.ok_or_else(|| WrapError::NoAdmin(file.clone()))?;
            let address = format!("http://{}", reachable_address(listen));
            admin = Url::parse(&address).map_err(|_| WrapError::Admin(address))?;
            token = routes.admin().bearer.as_ref().map(|bearer| bearer.reveal().to_owned());
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
        let mut route = at_address(admin.clone(), Some(RemoteTransport::Http), None);
        if let Some(token) = token {
            let no_token = || WrapError::BearerFile("the file holds no token".to_owned());
            route.request_headers.set.push(bearer(&token).ok_or_else(no_token)?);
        }
        Ok((route, admin))
    }
}

/// The address of a listener from its own machine.
fn reachable_address(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listen
}
