//! The certificate authorities that the certificate of a server is checked with.

use std::path::PathBuf;

use super::pem::certificates;

/// The word in a list that stands for the system's certificate authorities.
const SYSTEM: &str = "system";

/// Certificate authorities: from files, from the system, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    /// Whether the system's authorities are trusted too.
    pub system: bool,
    /// PEM files with authorities.
    pub files: Vec<PathBuf>,
    /// Whether the route file names a single file instead of a list. Then the system's authorities are trusted too, as
    /// in earlier versions.
    pub(crate) is_bare: bool,
}

impl Default for Authorities {
    fn default() -> Self {
        Self { system: true, files: Vec::new(), is_bare: false }
    }
}

impl Authorities {
    /// One file, without the system's authorities.
    pub(crate) fn one(file: String) -> Self {
        Self { system: false, files: vec![file.into()], is_bare: true }
    }

    /// Returns the authorities of a list of files, in which the word `system` means the system's authorities.
    pub(crate) fn list(names: Vec<String>) -> Self {
        let (system, files): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| Self::is_system(name));
        let files = files.into_iter().map(PathBuf::from).collect();
        Self { system: !system.is_empty(), files, is_bare: false }
    }

    /// Checks that each file contains certificates.
    ///
    /// # Errors
    /// If a file cannot be read, or holds no certificate: the file, and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.files.iter().try_for_each(|file| certificates(file).map(drop))
    }

    /// Whether an element of a list stands for the authorities of the system, and is not a file.
    pub(crate) fn is_system(name: &str) -> bool {
        name == SYSTEM
    }

    /// Returns the elements of the list, with the word for the system first.
    pub(crate) fn elements<T>(
        &self,
        word: impl Fn(&str) -> T,
        file: impl Fn(&PathBuf) -> T,
    ) -> Vec<T> {
        let system = self.system.then(|| word(SYSTEM));
        system.into_iter().chain(self.files.iter().map(file)).collect()
    }
}
