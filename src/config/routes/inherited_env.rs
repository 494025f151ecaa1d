//! The variables of Milepost's own environment that a server inherits.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use crate::platform::child::is_needed_variable;

/// The variables that a server inherits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InheritedEnv {
    /// All, except for those that are meant for Milepost only.
    All,
    /// The variables that describe the user, the machine and the network.
    Safe,
    /// The variables with these names.
    Names(Vec<String>),
}

/// Variables that a server may need and that never hold a secret of Milepost.
const SAFE: [&str; 9] =
    ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

/// Prefixes of further variables that a server may need.
const SAFE_BEGINNINGS: [&str; 3] = ["LC_", "SSL_CERT_", "XDG_"];

/// Suffixes of further variables that a server may need.
const SAFE_ENDINGS: [&str; 2] = ["_PROXY", "_proxy"];

/// Variables that servers must not inherit. A process with this one can notify the service manager as Milepost.
const OURS: [&str; 1] = ["NOTIFY_SOCKET"];

fn is_safe(name: &str) -> bool {
    SAFE.contains(&name)
        || SAFE_BEGINNINGS.iter().any(|begin| name.starts_with(begin))
        || SAFE_ENDINGS.iter().any(|end| name.ends_with(end))
        || is_needed_variable(name)
}

impl InheritedEnv {
    /// Returns those of the variables `names` that a server does not inherit, in order. `private`: the variables that
    /// the route file uses for secrets and for other servers.
    pub fn left_out(
        &self,
        names: impl IntoIterator<Item = OsString>,
        private: &BTreeSet<String>,
    ) -> BTreeSet<OsString> {
        let is_left_out = |name: &OsStr| {
            let name = name.to_str();
            match self {
                // A name that is not Unicode cannot be in the file.
                Self::All => name.is_some_and(|name| {
                    !is_safe(name) && (OURS.contains(&name) || private.contains(name))
                }),
                Self::Safe => !name.is_some_and(is_safe),
                Self::Names(names) => !names.iter().any(|known| Some(&**known) == name),
            }
        };
        names.into_iter().filter(|name| is_left_out(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_depends_on_the_setting() {
        let names = ["HOME", "LC_ALL", "https_proxy", "NOTIFY_SOCKET", "TOKEN", "OTHER"];
        let private = ["TOKEN", "HOME"].map(str::to_owned).into();
        let left_out = |setting: InheritedEnv| {
            let left_out = setting.left_out(names.map(OsString::from), &private).into_iter();
            left_out.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(left_out(InheritedEnv::All), ["NOTIFY_SOCKET", "TOKEN"]);
        assert_eq!(left_out(InheritedEnv::Safe), ["NOTIFY_SOCKET", "OTHER", "TOKEN"]);
        let own = InheritedEnv::Names(vec!["TOKEN".to_owned()]);
        let others = ["HOME", "LC_ALL", "NOTIFY_SOCKET", "OTHER", "https_proxy"];
        assert_eq!(left_out(own), others);
    }
}
