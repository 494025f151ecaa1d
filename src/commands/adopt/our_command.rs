//! The command that starts Milepost in front of a server: this program, or a launcher that runs it as a package.

use std::ffi::OsStr;
use std::path::Path;

use super::AdoptError;
use crate::config::programs;

/// The subcommand before a server's command.
pub(super) const WRAP: &str = "wrap";

/// Programs that run a package by its name.
const RUNNERS: [&str; 5] = ["npx", "bunx", "pnpx", "yarn", "uvx"];

/// Launchers that keep programs in a cache, which is emptied now and then, so that a path into it does not last: the
/// name of the cache's directory (a number may follow it), the launcher, and the words that run the package.
const CACHES: [(&str, &str, &[&str]); 4] = [
    ("_npx", "npx", &["-y", PACKAGE]),
    ("bunx-", "bunx", &[PACKAGE]),
    ("archive-v", "uvx", &[PACKAGE]),
    ("environments-v", "uvx", &[PACKAGE]),
];

/// The directory with the packages of one project.
const PROJECT_PACKAGES: &str = "node_modules";

/// The name of the package; its program has the same name.
pub(super) const PACKAGE: &str = "milepost";

/// The part of a command that starts Milepost: the words before `wrap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OurCommand {
    /// The program that the client starts.
    pub(super) program: String,
    /// The program's arguments before `wrap`.
    runs: &'static [&'static str],
}

/// The names by which the clients that read a file can start the running program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramReach {
    /// Only by its path.
    ByPath,
    /// By its name too ([`is_on_path`]).
    OnPath,
    /// Only by its name: other people and machines have the file too.
    Shared,
}

impl OurCommand {
    /// Makes a command whose program is Milepost itself, without a launcher.
    pub(super) fn direct(program: &str) -> Self {
        Self { program: program.to_owned(), runs: &[] }
    }

    /// Returns the command to write into a file. `exe` is the path of the running program.
    ///
    /// # Errors
    /// If the program's name is not Unicode text, or does not show later that the program is Milepost.
    pub(super) fn of_running(exe: &Path, reach: ProgramReach) -> Result<Self, AdoptError> {
        if let Some((runner, runs)) = launcher(exe, reach) {
            return Ok(Self { program: runner.to_owned(), runs });
        }
        Self::named(if reach == ProgramReach::ByPath { exe } else { Path::new(PACKAGE) })
    }

    /// Returns the command for a program that the user names.
    ///
    /// # Errors
    /// If the program's name is not Unicode text, or does not show later that the program is Milepost.
    pub(super) fn named(program: &Path) -> Result<Self, AdoptError> {
        let Some(program) = program.to_str() else {
            return Err(AdoptError::Program(format!("{} is no Unicode", program.display())));
        };
        if !is_milepost(program) {
            let why = format!(
                "{program:?}: its name has to begin with `milepost`, so that it is known again"
            );
            return Err(AdoptError::Program(why));
        }
        Ok(Self::direct(program))
    }

    /// Returns the program's arguments before `wrap`.
    pub(super) fn args(&self) -> impl Iterator<Item = &str> {
        let runs: &[&str] = self.runs;
        runs.iter().copied().chain([WRAP])
    }

    /// Returns the program and its arguments before `wrap`.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.program).chain(self.args())
    }
}

/// Whether the name `milepost` starts the program `exe` with `paths` as `PATH`. `environments` are the directories of
/// activated environments, such as `VIRTUAL_ENV`: their programs are on the `PATH` of one shell only, and clients that
/// are started elsewhere do not find them.
pub(super) fn is_on_path(exe: &Path, paths: &OsStr, environments: &[&Path]) -> bool {
    let Some(found) = programs::found_anywhere(OsStr::new(PACKAGE), paths) else { return false };
    // Symbolic links are followed, because package managers put a link to the program into a directory of `PATH`.
    let is_same = || Some(found.canonicalize().ok()? == exe.canonicalize().ok()?);
    let is_below = |folder: &&Path| folder.is_absolute() && found.starts_with(folder);
    !environments.iter().any(is_below) && is_same() == Some(true)
}

/// Returns the launcher to write instead of the program's path, if that path must not be in the file: the program is in
/// a cache, or it belongs to the packages of one project while other people share the file.
fn launcher(exe: &Path, reach: ProgramReach) -> Option<(&'static str, &'static [&'static str])> {
    let folders = || exe.components().filter_map(|folder| folder.as_os_str().to_str());
    let is_cache = |folder: &str, name: &str| {
        let rest = folder.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let found = CACHES.iter().find(|(name, ..)| folders().any(|folder| is_cache(folder, name)));
    let of_project = || folders().any(|folder| folder == PROJECT_PACKAGES).then(|| &CACHES[0]);
    let found = found.or_else(|| if reach == ProgramReach::Shared { of_project() } else { None });
    found.map(|(_, runner, runs)| (*runner, *runs))
}

/// Returns the position of `wrap` in the arguments of a command, if Milepost is already in front of the server. An
/// argument that is not a string is `None`.
pub(super) fn wrap_at(command: &str, args: &[Option<String>]) -> Option<usize> {
    let is_wrap = |at: &usize| args.get(*at).is_some_and(|word| word.as_deref() == Some(WRAP));
    if is_milepost(command) {
        return Some(0).filter(is_wrap);
    }
    let name = file_name(command);
    // The wheel is run as a Python module, by `python3.13`, `python.exe` or `py`.
    if name.starts_with("python") || ["py", "py.exe"].contains(&name) {
        let module = args.iter().take(2).map(Option::as_deref);
        return Some(2).filter(|_| module.eq([Some("-m"), Some(PACKAGE)])).filter(is_wrap);
    }
    if !RUNNERS.contains(&name) {
        return None;
    }
    // The name of the package is the first word that is not an option of the launcher.
    let is_package = |word: &Option<String>| {
        word.as_deref().is_none_or(|word| !word.starts_with('-') && word != "dlx")
    };
    let package = args.iter().position(is_package)?;
    let ours = args.get(package)?.as_deref().is_some_and(is_milepost);
    Some(package + 1).filter(|_| ours).filter(is_wrap)
}

/// Whether a word is this program's name, with or without its directory, version or platform.
pub(super) fn is_milepost(word: &str) -> bool {
    file_name(word).starts_with("milepost")
}

fn file_name(word: &str) -> &str {
    word.rsplit(['/', '\\']).next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(exe: &str, alone: &str, shared: &str) {
        for (reach, words) in [(ProgramReach::ByPath, alone), (ProgramReach::Shared, shared)] {
            let command = OurCommand::of_running(Path::new(exe), reach).unwrap();
            assert_eq!(command.words().collect::<Vec<_>>().join(" "), words);
        }
    }

    #[test]
    fn a_program_that_path_leads_to_is_named_by_its_name() {
        let words = |exe: &str| {
            let command = OurCommand::of_running(Path::new(exe), ProgramReach::OnPath).unwrap();
            command.words().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("/opt/milepost-1.2/milepost"), "milepost wrap");
        // A launcher may have put its cache on the `PATH` of the program.
        assert_eq!(words("/Users/a/.cache/uv/archive-v0/AbC/bin/milepost"), "uvx milepost wrap");
    }

    #[cfg(unix)]
    #[test]
    fn path_leads_to_the_program_itself_to_a_link_or_to_another_one() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["own", "links", "other", "text"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let file = |name: &str, mode: u32| {
            std::fs::write(at(name), "").unwrap();
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        file("own/milepost", 0o755);
        file("other/milepost", 0o755);
        file("text/milepost", 0o644);
        symlink("../own/milepost", at("links/milepost")).unwrap();
        let check = |exe: &str, names: &[&str], environments: &[&str]| {
            let paths = std::env::join_paths(names.iter().map(|name| at(name))).unwrap();
            let environments: Vec<_> = environments.iter().map(|name| at(name)).collect();
            let environments: Vec<&Path> = environments.iter().map(|path| &**path).collect();
            is_on_path(&at(exe), &paths, &environments)
        };
        assert!(check("own/milepost", &["none", "text", "own"], &[]));
        assert!(check("own/milepost", &["links", "other"], &["own"]));
        assert!(check("links/milepost", &["own"], &[]));
        assert!(!check("own/milepost", &["other", "own"], &[]), "another one is found first");
        assert!(!check("own/milepost", &["text", "none"], &[]), "none is found");
        assert!(!check("own/milepost", &["own"], &["own"]), "only this shell finds it");
        assert!(!check("gone/milepost", &["own"], &[]), "the program has been removed");
        assert!(!is_on_path(&at("own/milepost"), OsStr::new(""), &[]));
    }

    #[test]
    fn a_program_in_a_cache_is_named_by_what_runs_it() {
        check("/usr/bin/milepost", "/usr/bin/milepost wrap", "milepost wrap");
        check("/x/archive-videos/milepost", "/x/archive-videos/milepost wrap", "milepost wrap");
        check(
            "/Users/a/.npm/_npx/3f1c/node_modules/milepost-linux-x64/bin/milepost",
            "npx -y milepost wrap",
            "npx -y milepost wrap",
        );
        check(
            "/Users/a/shop/node_modules/milepost-linux-x64/bin/milepost",
            "/Users/a/shop/node_modules/milepost-linux-x64/bin/milepost wrap",
            "npx -y milepost wrap",
        );
        check(
            "/Users/a/.cache/uv/archive-v0/AbC/bin/milepost",
            "uvx milepost wrap",
            "uvx milepost wrap",
        );
        check(
            "/tmp/bunx-0-milepost@latest/node_modules/milepost-linux-x64/bin/milepost",
            "bunx milepost wrap",
            "bunx milepost wrap",
        );
    }

    #[test]
    fn another_name_is_not_written() {
        assert!(OurCommand::of_running(Path::new("/opt/mp"), ProgramReach::ByPath).is_err());
        assert!(OurCommand::named(Path::new("/opt/mp")).is_err());
    }

    #[test]
    fn what_was_written_is_known_again() {
        let at = |command: &str, args: &[&str]| {
            let args: Vec<_> = args.iter().map(|word| Some((*word).to_owned())).collect();
            wrap_at(command, &args)
        };
        assert_eq!(at("/opt/milepost", &["wrap", "--", "a"]), Some(0));
        assert_eq!(at("npx", &["-y", "milepost", "wrap", "--", "a"]), Some(2));
        assert_eq!(at("uvx", &["milepost", "wrap", "a"]), Some(1));
        assert_eq!(at("/venv/bin/python3", &["-m", "milepost", "wrap", "a"]), Some(2));
        assert_eq!(at("npx", &["-y", "other", "wrap"]), None);
        assert_eq!(at("python3", &["-m", "other", "wrap"]), None);
        assert_eq!(at("python3", &["milepost", "wrap"]), None);
        assert_eq!(at("/opt/milepost", &["serve"]), None);
    }
}
