//! The place of the state file, and labels for servers that no route file names.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use url::Url;

use crate::config::routes::{Route, Upstream};
use crate::config::values::StateDir;
use crate::platform::files;
use crate::progress::durations::fingerprint;

/// The environment variable with the state directory, or `off`.
const VARIABLE: &str = "MILEPOST_STATE_DIR";

/// Maximum number of bytes of a route's label in the state file. A longer label is cut.
const ROUTE_MAX: usize = 256;

/// Maximum number of characters of a program's name in a label.
const PROGRAM_MAX: usize = 40;

/// Returns the directory of the durations: from a flag, else from the environment, else from the route file, else the
/// usual directory for such data on this system. `None` if the durations are not kept, or no such directory is known.
pub fn state_dir(flag: Option<&StateDir>, file: Option<&StateDir>) -> Option<PathBuf> {
    let variable = env::var_os(VARIABLE).filter(|text| !text.is_empty());
    let variable = variable.map(StateDir::from);
    match flag.or(variable.as_ref()).or(file) {
        Some(StateDir::Off) => None,
        Some(StateDir::At(folder)) => Some(folder.clone()),
        None => usual(files::state_home(), files::home()),
    }
}

/// Returns a warning if other users can create files in the state directory: who can, and what to do. Returns `None`
/// otherwise, or if the directory does not exist yet.
pub fn state_dir_warning(folder: &Path) -> Option<String> {
    let who = files::folder_writer(&folder.metadata().ok()?)?;
    let place = folder.display();
    Some(format!(
        "{who} may write the state directory {place}, and can replace the operators' token and what Milepost has \
         learned: chmod 700 {place}"
    ))
}

fn usual(state_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // Ignore a relative path, as the XDG specification requires.
    let absolute = |text: OsString| Some(PathBuf::from(text)).filter(|path| path.is_absolute());
    let state_home = state_home.and_then(absolute);
    let base = state_home.or_else(|| Some(home.and_then(absolute)?.join(".local/state")));
    Some(base?.join("milepost"))
}

/// Returns a label for a command: its program, and a hash of the whole command (not the command itself, because
/// arguments may be secrets).
pub fn label_of_command(command: &[OsString]) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let program = program.to_string_lossy();
    let shown = program.chars().filter(|c| !c.is_control()).take(PROGRAM_MAX);
    label(shown.collect(), command.iter().map(|part| part.as_encoded_bytes()))
}

/// Returns a label for a server at a URL: its host, and a hash of the URL.
pub fn label_of_address(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    label(format!("{host}{port}"), [url.as_str().as_bytes()])
}

/// Returns the label of a route: its path, and a hash of its server, because in another route file the same path may
/// lead to a server whose tools have other durations.
pub fn label_of_route(route: &Route) -> String {
    // Leave room for the hash, which has nine characters.
    let end = route.path.floor_char_boundary(ROUTE_MAX - 9);
    let path = || route.path.get(..end).unwrap_or_default().to_owned();
    match &route.upstream {
        Upstream::Command(stdio) => {
            label(path(), stdio.command.iter().map(|part| part.as_encoded_bytes()))
        }
        Upstream::Http(http) => {
            let urls = [http.url.as_ref(), http.sse.as_ref()];
            label(path(), urls.into_iter().flatten().map(|url| url.as_str().as_bytes()))
        }
        Upstream::Demo => route.path.clone(),
    }
}

/// Returns the path in the label of a route; `None` for other labels. In earlier versions the path was the whole label.
pub fn path_in_label(label: &str) -> Option<&str> {
    let (path, _) = label.rsplit_once('#')?;
    path.starts_with('/').then_some(path)
}

fn label<'a>(shown: String, whole: impl IntoIterator<Item = &'a [u8]>) -> String {
    let number = fingerprint(whole);
    format!("{shown}#{:08x}", (number >> 32) ^ (number & 0xffff_ffff))
}

/// Returns a label, cut to the maximum length.
pub(super) fn cut(route: &str) -> &str {
    route.get(..route.floor_char_boundary(ROUTE_MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::routes::StdioUpstream;

    #[test]
    fn a_command_is_known_by_its_program_and_a_number() {
        let label = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            label_of_command(&words)
        };
        let known = label("/usr/bin/npx -y server --token=s3cret");
        assert_eq!(known, label("/usr/bin/npx -y server --token=s3cret"));
        assert!(known.starts_with("npx#") && known.len() == 12, "{known}");
        assert_ne!(known, label("/usr/bin/npx -y server --token=other"));
        assert_ne!(label("a b c"), label("a bc"));
        assert_eq!(label_of_command(&[]).len(), 9);
    }

    #[test]
    fn a_route_is_known_by_its_path_and_its_server() {
        let label = |command: &str| {
            let stdio = StdioUpstream::new(vec![OsString::from(command)]);
            label_of_route(&Route::new("/a".to_owned(), Upstream::Command(stdio)))
        };
        assert!(label("x").starts_with("/a#"), "{}", label("x"));
        assert_ne!(label("x"), label("y"));
        assert_eq!(path_in_label(&label("x")), Some("/a"));
        assert_eq!(path_in_label("npx#01234567"), None);
        assert_eq!(path_in_label("/a"), None);
        assert_eq!(label_of_route(&Route::new("/a".to_owned(), Upstream::Demo)), "/a");
    }

    #[test]
    fn an_address_is_known_by_its_host_and_a_number() {
        let label = |url: &str| label_of_address(&Url::parse(url).unwrap());
        let known = label("https://user:pass@example.com:8443/mcp?key=s3cret");
        assert!(known.starts_with("example.com:8443#") && !known.contains("s3cret"), "{known}");
        assert_ne!(label("https://example.com/a"), label("https://example.com/b"));
    }

    #[cfg(unix)]
    #[test]
    fn the_folder_is_where_such_things_belong() {
        let of = |state: &str, home: &str| {
            let said = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
            usual(said(state), said(home)).map(|path| path.display().to_string())
        };
        assert_eq!(of("/s", "/h").as_deref(), Some("/s/milepost"));
        assert_eq!(of("", "/h").as_deref(), Some("/h/.local/state/milepost"));
        assert_eq!(of("relative", "/h").as_deref(), Some("/h/.local/state/milepost"));
        assert_eq!(of("", "h"), None);
        assert_eq!(of("", ""), None);
    }
}
