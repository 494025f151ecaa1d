//! Whether the program of a command is there.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether a command of this name would be found: in a folder of `paths`, which is in the form of `PATH`,
/// or at its own path, which may be relative to one of `folders`.
pub fn is_there(program: &OsStr, paths: Option<&OsStr>, folders: &[&Path]) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return folders.iter().any(|folder| is_executable(&folder.join(program)));
    }
    let paths = paths.unwrap_or_default();
    std::env::split_paths(paths).any(|folder| is_executable(&folder.join(program)))
}

fn is_executable(path: &Path) -> bool {
    let found = std::fs::metadata(path);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
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
    }
}
