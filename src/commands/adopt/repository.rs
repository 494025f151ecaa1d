//! Finds out whether a client's file is in a repository, which other people share.

use std::path::{Path, PathBuf};

use crate::platform::files;

/// Whether the repository around a file shares it with other people.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    repository: Option<PathBuf>,
}

impl Sharing {
    /// Looks for a repository around a file. A repository that is the home directory itself is ignored, because its
    /// files belong to one person.
    pub(super) fn of(path: &Path) -> Self {
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let home = files::home().map(PathBuf::from);
        let folders = place.ancestors().skip(1);
        let repository = folders
            .take_while(|folder| Some(*folder) != home.as_deref())
            .find(|folder| folder.join(".git").exists());
        Self { repository: repository.map(Path::to_owned) }
    }

    /// Returns the directory of the repository, if the file is in one.
    pub(super) fn repository(&self) -> Option<&Path> {
        self.repository.as_deref()
    }
}
