//! A route file that has been read: its routes and listeners, and its warnings.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use super::env::{EnvValues, Environment};
use super::faults::{ConfigFault, ConfigFaults};
use super::fleet::Fleet;
use super::header_rules::HeaderRules;
use super::presets::Preset;
use super::resolve::{PresetSettings, ResolvedConfig};
use super::route::{Admin, Route, Secret, Server, Upstream};
use super::{oversights, resolve, schema, writers};
use crate::config::settings::Settings;
use crate::config::values::{StateDir, nearest};
use crate::platform::files;
use crate::policy_file::all_errors;
use crate::policy_file::diagnostics::{self, ConfigError};
use crate::progress::Policy;
use crate::progress::dialect::Dialect;

/// Why a route file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RoutesError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the read.
        #[source]
        source: io::Error,
    },
    /// The file does not exist.
    #[error("there is no file {}; `milepost init` writes a route file", .0.display())]
    Missing(PathBuf),
    /// The file is not text.
    #[error("{} {what}", path.display())]
    NoText {
        /// The file.
        path: PathBuf,
        /// What the content is, and what is expected instead.
        what: &'static str,
    },
    /// The file has errors.
    #[error("{0}")]
    Invalid(ConfigFaults),
    /// The requested route does not exist.
    #[error("{}: {asked}; {known}", path.display())]
    NoRoute {
        /// The file.
        path: PathBuf,
        /// The requested path.
        asked: String,
        /// The existing routes.
        known: String,
    },
    /// Other users may write to a file that names commands, and `--strict-files` refuses such a file.
    #[error("{}: {who}, and the file names commands; {WRITERS_CURE}", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
        /// The file, and the users who may write to it.
        who: String,
    },
    /// A file without any route was to replace a file that is served.
    #[error("{}: there is no route; write at least one [[route]] with a path and an upstream", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// What to do about a file that other users may write to.
const WRITERS_CURE: &str =
    "let only root and the user who runs milepost own and write the file and its folders";

impl RoutesError {
    /// Returns the error for a fault in a preset.
    fn of_preset(preset: Preset, error: ConfigError) -> Self {
        let key = diagnostics::key_at(preset.lines, error.at);
        Self::invalid(Path::new(preset.name), preset.lines, error, key)
    }

    /// Returns the error for a fault in the text of a file.
    pub(super) fn invalid(
        path: &Path,
        text: &str,
        error: ConfigError,
        key: Option<String>,
    ) -> Self {
        Self::Invalid(ConfigFaults::one(ConfigFault::of(path, text, error, key)))
    }

    /// Returns the faults in the text of the file, if the error is [`Self::Invalid`].
    pub fn faults(&self) -> Option<&[ConfigFault]> {
        match self {
            Self::Invalid(faults) => Some(faults.all()),
            _ => None,
        }
    }
}

impl PresetSettings {
    /// Reads a preset, for a flag; `own`: the dialects of a route file, which take precedence over those of the preset.
    ///
    /// # Errors
    /// If the preset is invalid, which is a fault of Milepost.
    pub fn new(preset: Preset, own: &[Dialect]) -> Result<Self, RoutesError> {
        Self::read(preset, own).map_err(|error| RoutesError::of_preset(preset, error))
    }

    /// Changes `route` by the settings of connections, and by the lifecycle of the preset if the route has none.
    ///
    /// # Errors
    /// If the URLs do not fit those of the server.
    pub fn merge_into(&self, route: &mut Route) -> Result<(), RoutesError> {
        self.connect(route).map_err(|error| RoutesError::of_preset(self.preset, error))
    }
}

/// A route file, read and resolved.
#[derive(Debug, Clone)]
pub struct Routes {
    pub(super) path: PathBuf,
    /// The text of the file, which may contain secrets.
    text: Secret,
    pub(super) server: Server,
    pub(super) admin: Admin,
    pub(super) fleet: Option<Fleet>,
    pub(super) state: Option<StateDir>,
    defaults: Settings,
    pub(super) routes: Vec<Route>,
    pub(super) env_values: EnvValues,
    pub(super) dialects: Vec<Dialect>,
    /// Whether files that other users may write to are refused.
    strict_files: bool,
}

/// Returns the text of a file.
///
/// # Errors
/// If the file does not exist, cannot be read, or is not UTF-8 text.
pub fn read_text(path: &Path) -> Result<String, RoutesError> {
    let no_text = |what| RoutesError::NoText { path: path.to_owned(), what };
    let bytes = std::fs::read(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => RoutesError::Missing(path.to_owned()),
        io::ErrorKind::IsADirectory => no_text("is a folder; a file is expected"),
        _ => RoutesError::Unreadable { path: path.to_owned(), source },
    })?;
    // Some Windows editors and shells save in UTF-16, for which the general error would not say what to do.
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(no_text("is in UTF-16; save it in UTF-8"));
    }
    String::from_utf8(bytes).map_err(|_| no_text("is not in UTF-8; save it in UTF-8"))
}

impl Routes {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or contains an error.
    pub fn load(path: &Path) -> Result<Self, RoutesError> {
        let text = read_text(path)?;
        Self::parse(path, &text, &Environment::of_process())
    }

    /// Reads the text of the file at `path`, and the files that the text names.
    ///
    /// # Errors
    /// If the text contains an error.
    pub fn parse(path: &Path, text: &str, environment: &Environment) -> Result<Self, RoutesError> {
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        let read = |table: Spanned<DeTable<'_>>| resolve::read(table, text, folder, environment);
        let resolved = all_errors::read(text, &read, &schema::reword).map_err(|errors| {
            // A file in JSON or YAML has an error in nearly every line, and none of these errors names the cause.
            match oversights::other_format(path, text) {
                Some(what) => RoutesError::invalid(path, text, ConfigError::new(0..0, what), None),
                None => RoutesError::Invalid(ConfigFaults::of(path, text, errors)),
            }
        })?;
        let ResolvedConfig { server, admin, fleet, state, defaults, routes, dialects, env_values } =
            resolved;
        let (path, text) = (path.to_owned(), Secret::new(text.to_owned()));
        Ok(Self {
            path,
            text,
            server,
            admin,
            fleet,
            state,
            defaults,
            routes,
            dialects,
            env_values,
            strict_files: false,
        })
    }

    /// Returns the routes and, with `strict`, refuses a file that another user may write to, because that user could
    /// change its commands.
    ///
    /// # Errors
    ///
    /// If `strict` is true and another user may write to the file or its directories.
    pub fn with_strict_files(self, strict: bool) -> Result<Self, RoutesError> {
        let unknown = || "this system does not tell who may write the file".to_owned();
        match self
            .other_writer()
            // On a system that does not report who may write a file, `strict` refuses, because it promises that no
            // other user may.
            .or_else(|| (strict && !files::TELLS_WRITERS && self.names_commands()).then(unknown))
        {
            Some(who) if strict => Err(RoutesError::Writable { path: self.path, who }),
            _ => Ok(Self { strict_files: strict, ..self }),
        }
    }

    /// Whether files that other users may write to are refused.
    pub fn has_strict_files(&self) -> bool {
        self.strict_files
    }

    fn names_commands(&self) -> bool {
        self.routes.iter().any(|route| matches!(route.upstream, Upstream::Command(_)))
    }

    /// Returns the users besides root and this user who may write to the file, if it names commands.
    fn other_writer(&self) -> Option<String> {
        self.names_commands().then(|| writers::other_writer(&self.path)).flatten()
    }

    /// The warnings about an accepted file: other users may write to it although it names commands, or a key has
    /// another meaning than in earlier versions, or no effect.
    pub fn file_warnings(&self) -> Vec<ConfigFault> {
        let writer = self.other_writer().map(|who| {
            let cure = format!("{WRITERS_CURE}, which --strict-files demands");
            format!("{who}, and the file names commands; {cure}")
        });
        let authorities = self.routes.iter().filter_map(|route| {
            let Upstream::Http(http) = &route.upstream else { return None };
            http.ca_file.as_ref().filter(|authorities| authorities.is_bare)?;
            Some(format!(
                "route {}: `ca_file` replaces the system's certificate authorities; write \
                 [\"system\", \"ca.pem\"] for both, or [\"ca.pem\"] if this is meant",
                route.path
            ))
        });
        let warnings = writer.into_iter().chain(authorities);
        let warnings = warnings.map(|what| ConfigFault::of_file(&self.path, what));
        warnings.chain(oversights::retired(self)).collect()
    }

    /// Returns the warnings about a file that is to be served: those about any file, and oversights.
    pub fn warnings(&self) -> Vec<ConfigFault> {
        self.file_warnings().into_iter().chain(oversights::find(self)).collect()
    }

    /// Returns the routes, if there are any.
    ///
    /// # Errors
    ///
    /// If there is no route. An empty file is more likely a failed write than a wish to serve nothing.
    pub fn not_empty(self) -> Result<Self, RoutesError> {
        if self.routes.is_empty() { Err(RoutesError::Empty { path: self.path }) } else { Ok(self) }
    }

    /// Returns those of the variables `names` that servers do not inherit, in one line for each route that has some.
    pub fn left_out(&self, names: impl Iterator<Item = OsString> + Clone) -> String {
        let mut lines = String::new();
        for route in &self.routes {
            let Upstream::Command(stdio) = &route.upstream else { continue };
            let left_out = stdio.left_out(names.clone());
            if !left_out.is_empty() {
                let left_out: Vec<_> = left_out.iter().map(|name| name.to_string_lossy()).collect();
                lines += &format!("{} does not inherit {}\n", route.path, left_out.join(", "));
            }
        }
        lines
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text of the file as it was written.
    pub fn text(&self) -> &str {
        self.text.reveal()
    }

    /// The listener for clients.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The listener for operators.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The other replicas of the proxy, if the file names a fleet.
    pub fn fleet(&self) -> Option<&Fleet> {
        self.fleet.as_ref()
    }

    /// Returns the directory of the data that outlives the process, if the file names one.
    pub fn state(&self) -> Option<&StateDir> {
        self.state.as_ref()
    }

    /// Whether the settings for all routes are the same in both files.
    pub fn has_defaults_of(&self, other: &Self) -> bool {
        self.defaults == other.defaults
    }

    /// Changes `policy` by the settings for every route.
    pub fn apply_defaults(&self, policy: &mut Policy) {
        self.defaults.apply(policy);
    }

    /// Returns the policy of a route: the file's defaults, overridden by its own settings.
    pub fn policy(&self, route: &Route) -> Policy {
        let mut policy = Policy::default();
        self.apply_defaults(&mut policy);
        route.apply(&mut policy);
        policy
    }

    /// The dialects that the file describes.
    pub fn dialects(&self) -> &[Dialect] {
        &self.dialects
    }

    /// Gives the requests of every route the headers of `rules`.
    pub fn set_request_headers(&mut self, rules: &HeaderRules) {
        for route in &mut self.routes {
            route.request_headers = rules.clone();
        }
    }

    /// Every route, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// Returns the route with the path `name`; without `name`, the only route.
    ///
    /// # Errors
    /// If no route has this path, or if no path is given and the file has several routes.
    pub fn find(&self, name: Option<&str>) -> Result<&Route, RoutesError> {
        let found = match (name, &self.routes[..]) {
            (Some(name), routes) => routes.iter().find(|route| route.path == name),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        found.ok_or_else(|| self.no_route(name))
    }

    /// Returns the file reduced to one of its routes.
    ///
    /// # Errors
    /// If no route has this path, or if no path is given and the file has several routes.
    pub fn only(mut self, name: Option<&str>) -> Result<Self, RoutesError> {
        let path = self.find(name)?.path.clone();
        self.routes.retain(|route| route.path == path);
        Ok(self)
    }

    /// Returns the warning that the settings of no route are used, if the file has several routes and none is named.
    pub fn unnamed_route(&self) -> Option<ConfigFault> {
        let [first, _, ..] = &self.routes[..] else { return None };
        let what = format!(
            "the settings of its routes are not used, only those for every route, because no route is named; write \
             --route {} for one of {}",
            first.path,
            self.paths().join(", ")
        );
        Some(ConfigFault::of_file(&self.path, what))
    }

    fn paths(&self) -> Vec<&str> {
        self.routes.iter().map(|route| &*route.path).collect()
    }

    fn no_route(&self, name: Option<&str>) -> RoutesError {
        let paths = self.paths();
        let asked = match (name, &paths[..]) {
            (Some(name), _) => format!("there is no route {name:?}"),
            (None, [first, ..]) => {
                format!("it is not clear which route is meant; write for instance --route {first}")
            }
            (None, []) => "a [[route]] is expected".to_owned(),
        };
        let near = name.and_then(|name| nearest(name, paths.iter().copied()));
        let known = match (near, &paths[..]) {
            (Some(near), _) => format!("did you mean {near:?}?"),
            (None, []) => "the file has none".to_owned(),
            (None, paths) => format!("the file has {}", paths.join(", ")),
        };
        RoutesError::NoRoute { path: self.path.clone(), asked, known }
    }
}
