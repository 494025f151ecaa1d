//! Finds other users who may write to a route file. A user who can change a file that names commands can have them run
//! as this user.

use std::path::{Path, PathBuf, absolute};

use crate::platform::files;

/// Returns as text the users besides root and this user who may write to a file or replace it; `None` if there is none.
/// The user's own group does not count as another user.
pub(super) fn other_writer(file: &Path) -> Option<String> {
    let given = absolute(file).ok()?;
    let real = given.canonicalize().ok()?;
    // A user who can change a symbolic link or a directory of the path can replace the file.
    let folders = [given.parent(), real.parent()].into_iter().flatten();
    let folders = folders.flat_map(Path::ancestors).map(Path::to_owned);
    let places: Vec<PathBuf> = std::iter::once(real.clone()).chain(folders).collect();
    places.iter().find_map(|place| {
        let known = place.metadata().ok()?;
        let who = files::other_writer(&known)?;
        Some(format!("{who} may write {}", place.display()))
    })
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn whoever_may_write_the_file_or_its_folder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("routes");
        let file = folder.join("proxy.toml");
        let set =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "").unwrap();
        set(&folder, 0o755);
        for (mode, who) in [(0o600, None), (0o664, None), (0o666, Some("every user may write"))] {
            set(&file, mode);
            let found = other_writer(&file);
            assert_eq!(found.is_some(), who.is_some(), "{mode:o}: {found:?}");
            assert!(found.is_none_or(|found| found.starts_with(who.unwrap())));
        }
        set(&file, 0o600);
        for (mode, is_found) in [(0o777, true), (0o1777, false), (0o775, false)] {
            set(&folder, mode);
            assert_eq!(other_writer(&file).is_some(), is_found, "{mode:o}");
        }
        // The directory that contains the link is checked as well.
        let (open, link) = (dir.path().join("open"), dir.path().join("open/link.toml"));
        fs::create_dir(&open).unwrap();
        symlink(&file, &link).unwrap();
        set(&open, 0o777);
        assert!(other_writer(&link).is_some());
        assert_eq!(other_writer(&file), None);
        if !files::is_administrator() {
            return;
        }
        chown(&file, Some(4711), None).unwrap();
        let found = other_writer(&file).unwrap();
        assert!(found.starts_with("the user with the number 4711 may write"), "{found}");
        chown(&file, Some(0), Some(4712)).unwrap();
        assert_eq!(other_writer(&file), None);
        set(&file, 0o660);
        let found = other_writer(&file).unwrap();
        assert!(found.starts_with("the group with the number 4712 may write"), "{found}");
    }
}
