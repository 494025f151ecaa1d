//! Whether the program of a command exists.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::platform::files;

/// Whether a command with this name would be found. A bare name is looked for in the directories of `paths` (in the
/// form of `PATH`); a path may be relative to one of `folders`.
pub fn is_there(program: &OsStr, paths: Option<&OsStr>, folders: &[&Path]) -> bool {
    let is_in = |folder: &Path| files::program_at(folder.join(program)).is_some();
    // A name with a slash is not searched in PATH, as in `execvp`.
    if files::is_path(program) {
        return folders.iter().any(|folder| is_in(folder));
    }
    std::env::split_paths(paths.unwrap_or_default()).any(|folder| is_in(&folder))
}

/// Returns the program that a bare name leads to in `paths` (in the form of `PATH`). Relative directories are skipped,
/// because they differ between processes with different working directories.
pub fn found_anywhere(name: &OsStr, paths: &OsStr) -> Option<PathBuf> {
    let mut folders = std::env::split_paths(paths).filter(|folder| folder.is_absolute());
    folders.find_map(|folder| files::program_at(folder.join(name)))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_are_sought_as_the_system_does() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        file("runs", 0o755);
        file("text", 0o644);
        let paths = format!("/nowhere:{}", folder.path().display());
        let check = |program: &str| {
            is_there(program.as_ref(), Some(paths.as_ref()), &[Path::new("/"), folder.path()])
        };
        assert_eq!(["runs", "./runs"].map(check), [true; 2]);
        assert_eq!(["text", "./text", "missing", "./missing", ""].map(check), [false; 5]);
        let whole = folder.path().join("runs");
        assert!(is_there(whole.as_os_str(), None, &[Path::new("/nowhere")]));
        assert!(!is_there("runs".as_ref(), None, &[folder.path()]));
        let found = |name: &str| found_anywhere(name.as_ref(), paths.as_ref());
        assert_eq!([found("runs"), found("text")], [Some(whole), None]);
        assert_eq!(found_anywhere("sh".as_ref(), ":bin:../../../../../bin".as_ref()), None);
    }
}
