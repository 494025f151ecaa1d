//! `[server]`, `[admin]` and `[state]`.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use crate::config::routes::file::File;
use crate::config::routes::fleet::{Fleet, FleetSettings};
use crate::config::routes::keys::ScopeTable;
use crate::config::routes::pem;
use crate::config::routes::route::{Admin, Server, ServerTls, StateSettings};
use crate::config::settings::SettingScope;
use crate::config::values::StateDir;
use crate::policy_file::diagnostics::ConfigError;

pub(super) fn read(file: &File, folder: &Path) -> Result<(Server, Admin), ConfigError> {
    let mut server = file.server.over(Server::default());
    if let Some(tls) = &mut server.tls {
        certificate(tls, folder, &file.server, "tls")?;
    }
    if let Some(authorities) = &mut server.client_ca_file {
        let wrong = |what: String| {
            ConfigError::new(file.server.place("client_ca_file").unwrap_or_default(), what)
        };
        if server.tls.is_none() {
            let what = "`client_ca_file` goes with `tls`, which this listener does not have";
            return Err(wrong(what.to_owned()));
        }
        *authorities = folder.join(&*authorities);
        pem::certificates(authorities).map_err(wrong)?;
    }
    let admin = file.admin.as_ref();
    let place = admin.and_then(|admin| admin.place("listen"));
    let admin = admin.map_or_else(Admin::none, |admin| admin.over(Admin::default()));
    let closed = !server.insecure && server.allowed_hosts.is_empty();
    let written =
        [(file.server.place("listen"), Some(server.listen)), (place.clone(), admin.listen)];
    for (place, listen) in written {
        if let (Some(place), Some(listen)) = (place, listen)
            && closed
            // A listener on `::ffff:127.0.0.1` is on the loopback interface.
            && !listen.ip().to_canonical().is_loopback()
        {
            return Err(beyond_loopback(place, listen));
        }
    }
    // Port 0 means a free port chosen by the system, so two listeners with port 0 never collide.
    if admin.listen == Some(server.listen) && server.listen.port() != 0 {
        let place = place.or_else(|| file.server.place("listen")).unwrap_or_default();
        let what =
            format!("clients connect to {} already; another port is expected", server.listen);
        return Err(ConfigError::new(place, what));
    }
    Ok((server, admin))
}

/// Returns the error for a listener that other machines can reach and that has no `allowed_hosts`. A page in a browser
/// can use a name that resolves to any address (DNS rebinding), so the name in the request must be checked.
fn beyond_loopback(place: Range<usize>, listen: SocketAddr) -> ConfigError {
    let what = format!(
        "{listen} can be reached from other machines; server.allowed_hosts = [\"the.name.they.use\"] \
         is expected as well (or server.insecure = true: any name)"
    );
    ConfigError::new(place, what)
}

/// Checks that a certificate and its key can be read and match. `key`: the place of both in the file.
pub(super) fn certificate<S: SettingScope>(
    files: &mut ServerTls,
    folder: &Path,
    table: &ScopeTable<S>,
    key: &str,
) -> Result<(), ConfigError> {
    let wrong = |part: &str, what| {
        ConfigError::new(table.place(&format!("{key}.{part}")).unwrap_or_default(), what)
    };
    files.certificate = folder.join(&files.certificate);
    files.key = folder.join(&files.key);
    let chain = pem::certificates(&files.certificate).map_err(|what| wrong("certificate", what))?;
    pem::key(&files.key, chain).map_err(|what| wrong("key", what))
}

/// Returns the settings of the fleet, if the file has a table for it. `taken`: the addresses of the other listeners.
pub(super) fn fleet(
    table: Option<&ScopeTable<FleetSettings>>,
    taken: [Option<SocketAddr>; 2],
) -> Result<Option<Fleet>, ConfigError> {
    let Some(table) = table else { return Ok(None) };
    let fleet = table.over(FleetSettings::default());
    let wrong = |key: &str, what: String| {
        ConfigError::new(table.place(key).unwrap_or_else(|| table.whole()), what)
    };
    if taken.contains(&Some(fleet.listen)) && fleet.listen.port() != 0 {
        let what = format!("{} is another listener's; another port is expected", fleet.listen);
        return Err(wrong("listen", what));
    }
    Fleet::of(fleet).map(Some).map_err(|(key, what)| wrong(key, what))
}

/// Returns the directory for data that outlives the process, if the file names one.
pub(super) fn state(table: &ScopeTable<StateSettings>, folder: &Path) -> Option<StateDir> {
    match table.over(StateSettings::default()).dir? {
        StateDir::At(below) => Some(StateDir::At(folder.join(below))),
        StateDir::Off => Some(StateDir::Off),
    }
}
